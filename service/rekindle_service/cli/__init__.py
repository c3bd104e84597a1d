"""The command line: a thin reader and writer of the REST interface, plus ``serve`` and ``demo``."""
