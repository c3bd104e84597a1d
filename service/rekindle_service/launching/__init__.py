"""Starting processes: the keeper of a job, and the question to an interpreter whether it can run one."""
