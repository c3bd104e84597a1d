"""Notifications about jobs: events behind a stored cursor are delivered to webhooks and commands."""
