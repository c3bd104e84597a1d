"""A project as people lay it out: a package with relative imports, started with -m."""
