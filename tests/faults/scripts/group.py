"""Ranks that form a group and pass objects round until the file ``stop`` is there. Knows nothing of rekindle.

``rpc`` uses torch's RPC too; ``own`` makes rank 0 serve a store where torchrun has announced one, as older scripts do;
``late``: rank 1 waits for the file ``go`` first.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import rpc

STOP = Path(os.environ["REKINDLE_SNAPSHOT_DIR"], "stop")


def main() -> None:
    while "late" in sys.argv and os.environ["RANK"] == "1" and not STOP.with_name("go").exists():
        time.sleep(0.02)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if "rpc" in sys.argv:
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)
        print("rpc answers", rpc.rpc_sync(f"worker{(rank + 1) % world_size}", torch.add, (1, 1)), flush=True)
    if "own" in sys.argv:
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(*address, world_size, is_master=rank == 0)
        store.set(f"own {rank}", "x")
        print("own store has", store.get(f"own {(rank + 1) % world_size}").decode(), flush=True)
    step, stopped = 0, False
    while not stopped:
        objects = [None] * world_size
        dist.all_gather_object(objects, STOP.exists())
        stopped, step = all(objects), step + 1
        print(f"step {step}", flush=True)
        time.sleep(0.05)
    if "rpc" in sys.argv:
        rpc.shutdown()
    dist.destroy_process_group()
    print("finished", flush=True)


if __name__ == "__main__":
    main()
