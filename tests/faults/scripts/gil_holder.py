"""In each attempt another rank sleeps in C for ever and holds the GIL, between two collectives.

Arguments: for each attempt the rank, and "early" or "late": whether it sleeps before the others wait or after that.
"""

import ctypes
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def sleep_in_c():
    ctypes.PyDLL(None).sleep(10000)


dist.init_process_group("gloo")
rank, attempt = dist.get_rank(), int(os.environ["REKINDLE_ATTEMPT"])
turns = sys.argv[1:]
Path(os.environ["REKINDLE_SNAPSHOT_DIR"], f"progress-{attempt}").touch()  # each failure is the first since progress
for _ in range(17):
    dist.all_reduce(torch.ones(1))
print("reduced", flush=True)
if attempt <= len(turns):
    culprit, order = turns[attempt - 1].split(":")
    if (rank == int(culprit)) != (order == "early"):
        time.sleep(1)
    if rank == int(culprit):
        sleep_in_c()
    for _ in range(100):  # a signal has ended the sleep: here what looks for the culprit finds the ranks again
        dist.all_reduce(torch.ones(1))
        time.sleep(0.1)
dist.destroy_process_group()
