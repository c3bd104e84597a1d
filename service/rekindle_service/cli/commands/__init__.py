"""One module per verb of the command line, named like it."""
