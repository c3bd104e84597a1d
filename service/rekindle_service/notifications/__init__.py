"""Telling others what happens to jobs: read from the events table behind a stored cursor, each receiver by itself."""
