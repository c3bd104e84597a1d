"""`rekindle top`: what it shows, its keys, and how both become lines of a terminal."""
