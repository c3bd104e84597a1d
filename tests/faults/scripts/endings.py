"""Ranks that reduce together, and then end each in its own way: the argument of its number."""

import os
import sys
import time

import torch
import torch.distributed as dist

if "RANK" in os.environ:  # which a single process has not
    dist.init_process_group("gloo")
    for _ in range(3):
        dist.all_reduce(torch.ones(1))
    dist.barrier()
    dist.destroy_process_group()
match sys.argv[1 + int(os.environ.get("RANK", "0"))].split():
    case ["_exit", code]:
        os._exit(int(code))
    case ["exec", code]:
        program = f"import sys, time; print('another program', flush=True); time.sleep(0.5); sys.exit({code})"
        os.execv(sys.executable, [sys.executable, "-c", program])  # noqa: S606  # no shell is wanted
    case ["late"]:
        time.sleep(3)
