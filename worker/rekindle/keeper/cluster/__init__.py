"""The keepers of a job on several machines: the leading one decides, one on each node runs that node's ranks."""
