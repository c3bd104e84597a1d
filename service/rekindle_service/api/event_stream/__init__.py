"""The stream of server-sent events."""
