"""Hangs in another way in every attempt: rank 1 does what the list given as arguments names, the others wait for it."""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader


def sleep():
    time.sleep(3600)


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def spin():
    while True:
        pass


def lock_in_c():
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):  # the second call waits for ever and holds the GIL; a signal does not end it
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)


def skip_collective():
    dist.recv(torch.ones(1), src=0)  # nobody sends


def dead_loader():
    batches = iter(DataLoader(range(1000), num_workers=1))
    next(batches)
    os.kill(batches._workers[0].pid, signal.SIGSTOP)
    for _ in batches:
        pass


def slow():
    """No hang: output shows life while a step takes longer than the limit."""
    for second in range(5):
        print("working", second)
        time.sleep(1)


HANGS = {hang.__name__: hang for hang in (sleep, stop, spin, lock_in_c, skip_collective, dead_loader, slow)}


def main():
    dist.init_process_group("gloo")
    attempt = int(os.environ["REKINDLE_ATTEMPT"])
    Path(os.environ["REKINDLE_SNAPSHOT_DIR"], f"progress-{attempt}").touch()
    for step in range(5):
        dist.all_reduce(torch.ones(1))
        print("step", step)
    names = sys.argv[1:]
    if attempt <= len(names) and dist.get_rank() == 1:
        HANGS[names[attempt - 1]]()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
