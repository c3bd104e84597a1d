"""Ends in every attempt by what only follows: rank 1 does what its arguments name, and causes it."""

import datetime
import os
import queue
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

LONG, SHORT = datetime.timedelta(minutes=5), datetime.timedelta(seconds=2)

SHORT_GROUPS = ("late_in_group", "fail_in_finally")


def late(_group):
    time.sleep(3600)


def late_in_group(_group):
    time.sleep(3600)


def produce():
    raise ValueError("the shard is broken")


def wait_for_dead_thread(_group):
    batches = queue.Queue()
    threading.Thread(target=produce, name="producer").start()
    batches.get()


def wait_in_finally(_group):
    try:
        raise ValueError("the loss is negative")
    finally:
        dist.recv(torch.ones(1), src=0)  # nobody sends


def fail_in_finally(group):
    try:
        raise ValueError("the loss is negative")
    finally:
        dist.recv(torch.ones(1), src=0, group=group)


def other_shape(_group):
    dist.all_reduce(torch.ones(1))


def main():
    attempt = int(os.environ["REKINDLE_ATTEMPT"])
    fault = (sys.argv[1:] + [""] * attempt)[attempt - 1]
    Path(os.environ["REKINDLE_SNAPSHOT_DIR"], f"progress-{attempt}").touch()  # each failure is the first since progress
    dist.init_process_group("gloo", timeout=SHORT if fault == "late" else LONG)
    group = dist.new_group([0, 1], timeout=SHORT) if fault in SHORT_GROUPS else None
    for step in range(5):
        dist.all_reduce(torch.ones(10), group=group)
        print("step", step)
    if fault and dist.get_rank() == 1:
        globals()[fault](group)
    dist.all_reduce(torch.ones(10), group=group)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
