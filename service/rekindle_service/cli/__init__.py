"""The command line: a thin client of the REST API, plus ``serve``, ``demo`` and ``doctor``."""
