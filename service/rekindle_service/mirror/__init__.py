"""Copies of a job off the box: its snapshots, code, logs and journal, at a URL that outlives this machine."""
