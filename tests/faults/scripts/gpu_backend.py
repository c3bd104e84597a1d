"""Steps with a collective each, on a backend that waits at full speed, as a thread does that waits for its GPU.

Its name is that of one of NCCL's backends, whose recorder torch then fills. Arguments: that name, the function in which
rank 1 stays after ``STEPS``, and the seconds after which a watchdog like NCCL's ends a rank that waits.
"""

import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, ProcessGroupGloo

import rekindle

STEPS = 12
name, stays_in, timeout = sys.argv[1], sys.argv[2], float(sys.argv[3])
WATCHDOG = """\
[rank0]:[E1124 10:00:00.0 ProcessGroupNCCL.cpp:700] [Rank 0] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=13, OpType=ALLREDUCE, NumelIn=3, NumelOut=3, Timeout(ms)=2000) \
ran for 2004 milliseconds before timing out.
[rank0]:[E1124 10:00:00.0 ProcessGroupNCCL.cpp:757] To avoid data inconsistency, we are taking the entire process down.
"""


class Spinning(Backend):
    """gloo, under another name."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._gloo = ProcessGroupGloo(store, rank, size, timeout=timeout)

    def getBackendName(self):  # noqa: N802  # torch's name
        return name

    def allreduce(self, tensors, options=None):
        work, began = self._gloo.allreduce(tensors, options), time.monotonic()
        while not work.is_completed():
            if timeout and time.monotonic() > began + timeout:
                sys.stderr.write(WATCHDOG)
                os.abort()
        return work


def sleeps():
    time.sleep(3600)


def evaluates():
    until = time.monotonic() + 40
    while time.monotonic() < until:
        torch.ones(200, 200) @ torch.ones(200, 200)


def uploads():
    subprocess.run(["sleep", "40"], check=True)


dist.Backend.register_backend("spinning", Spinning, devices=["cpu"])
dist.init_process_group("spinning")
for step in range(1, STEPS + 1):
    dist.all_reduce(torch.ones(3))
    rekindle.report(step=step)
    time.sleep(0.2)
if dist.get_rank() == 1 and int(os.environ["REKINDLE_ATTEMPT"]) <= (2 if timeout else 1):
    globals()[stays_in]()
dist.all_reduce(torch.ones(3))
dist.destroy_process_group()
