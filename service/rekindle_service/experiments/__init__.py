"""Experiments: sets of jobs that differ in some parameters, and the tables that compare them. Pure."""
