"""The checks of `rekindle doctor`: each returns what it found and what to do about it."""
