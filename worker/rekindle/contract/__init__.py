"""What worker and service agree on: paths, file formats, environment variables. Standard library only."""
