"""What worker and service agree on: paths, file formats, environment variables. Standard library only."""

__version__ = "0.1.0"
