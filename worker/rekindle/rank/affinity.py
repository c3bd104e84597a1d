"""Which cores this rank runs on, and how much of its GPUs a script may use."""

import os
import sys
from contextlib import suppress
from pathlib import Path

from rekindle.contract.cores import cores_of_rank
from rekindle.contract.environment import GPU_SHARE, RankEnv
from rekindle.contract.job import JobSpec


def bind_to_cores(env: RankEnv) -> None:
    """Run on the cores near the GPU, or on those of the CPU slot, as the server's setting `affinity` says.

    A number of threads that torch has chosen for more cores is reduced to theirs; one that the job sets stays.
    """
    usable = os.sched_getaffinity(0)
    cores = cores_of_rank(os.environ, env.local_rank, env.devices_per_rank, usable)
    if not cores or cores == usable:
        return
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # one that has ended, or a container that forbids it
            os.sched_setaffinity(int(thread.name), cores)
    torch = sys.modules.get("torch")
    if torch is not None and "OMP_NUM_THREADS" not in os.environ and torch.get_num_threads() > len(cores):
        torch.set_num_threads(len(cores))


def announce_share(spec: JobSpec) -> None:
    """Of the memory of its GPUs, a script that shares them is to use so much. Nothing enforces it."""
    if spec.gpu_share < 1:
        os.environ[GPU_SHARE] = f"{spec.gpu_share:g}"
