"""Settings of server and client, the home directory, and the log of the server."""
