"""Notifications about jobs: events after a stored cursor are delivered to webhooks and commands."""
