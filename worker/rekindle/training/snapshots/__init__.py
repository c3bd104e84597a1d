"""Snapshots: when one is due, how it is taken and loaded, and its files; each module imports only those below."""
