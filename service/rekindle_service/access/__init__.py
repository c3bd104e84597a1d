"""Who may do what: people and their tokens, browser sessions, limits, and the audit log."""
