"""Ranks that make no progress: noticing them, naming the one that causes it, and marking slow ones."""
