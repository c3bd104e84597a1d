"""One module for each verb of the command line, or for a family of them."""
