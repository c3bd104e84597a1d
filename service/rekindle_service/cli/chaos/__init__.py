"""Faults on request: which to inject, how a job recovers from each, and the report."""
