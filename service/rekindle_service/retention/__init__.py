"""What is kept and what is removed: deletion of directories, the use of the disk, and pruning by rules."""
