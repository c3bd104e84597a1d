"""The keepers of a job on several machines: the coordinator decides, one on each node runs that node's ranks."""
