"""Readers of run directories. Whatever lies there was written by a job, so nothing of it is trusted."""
