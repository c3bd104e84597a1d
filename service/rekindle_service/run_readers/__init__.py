"""Logs, metrics, ranks and snapshots, read from the run directory of a job."""
