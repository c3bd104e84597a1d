"""A training that starts its own processes, as the DDP tutorial does: one for each device, which train together.

``spawn`` uses ``torch.multiprocessing.spawn``; ``fork`` starts them by hand. Each prints what it was started with.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

PORT = 20000 + os.getpid() % 20000
NAMES = ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "CUDA_VISIBLE_DEVICES")


def train(rank: int, world_size: int, port: int) -> None:
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    total = torch.ones(1)
    dist.all_reduce(total)
    print(f"child {rank} of {world_size} counts {int(total)}", flush=True)
    first = Path(os.environ["REKINDLE_SNAPSHOT_DIR"], "begun")
    if rank == 1 and "kill" in sys.argv and not first.exists():
        first.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    while "wait" in sys.argv and os.environ["REKINDLE_ATTEMPT"] == "1":
        time.sleep(0.1)
    dist.destroy_process_group()


if __name__ == "__main__":
    print("environment", {name: os.environ.get(name) for name in NAMES}, flush=True)
    if "exit" in sys.argv and os.environ["REKINDLE_ATTEMPT"] == "2":
        sys.exit(3)
    if "spawn" in sys.argv:
        mp.spawn(train, args=(2, PORT), nprocs=2, join=True)
    else:
        mp.set_start_method("fork")
        children = [mp.Process(target=train, args=(rank, 2, PORT)) for rank in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        codes = [child.exitcode for child in children]
        if codes != [0, 0]:
            raise RuntimeError(f"children ended with {codes}")
    print("finished")
