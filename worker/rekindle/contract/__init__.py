"""What the two sides of rekindle agree on: paths, file formats and environment variables.

Standard library only. It is the whole of the worker side that the service imports.
"""
