"""Snapshots in three layers, each importing only those below: policy (when), engine (how), storage (the files)."""
