"""Ranks that form a group and pass objects round until the file ``stop`` is there. Knows nothing of rekindle.

``nodes`` uses torch's collectives in every usual way too, and prints what came out; ``rpc`` uses torch's RPC; ``own``
makes rank 0 serve a store where torchrun has announced one, as older scripts do. While the file ``late`` is there, all
ranks but 0 wait before they join.
"""

import os
import socket
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import rpc
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

STOP = Path(os.environ["REKINDLE_SNAPSHOT_DIR"], "stop")


def use_groups(rank: int, world_size: int) -> None:
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    print("sum", int(total), flush=True)
    hosts = [None] * world_size
    dist.all_gather_object(hosts, socket.gethostname())
    print("hosts", *hosts, flush=True)
    ends = dist.new_group([0, world_size - 1])
    total = torch.tensor([rank + 1.0])
    if rank in (0, world_size - 1):
        dist.all_reduce(total, group=ends)
        print("ends", int(total), flush=True)


def use_own_store(rank: int, world_size: int) -> None:
    with socket.socket() as any_socket:
        any_socket.bind((os.environ["MASTER_ADDR"] if rank == 0 else "", 0))
        ports = [any_socket.getsockname()[1]]
    dist.broadcast_object_list(ports, 0)
    url = f"tcp://{os.environ['MASTER_ADDR']}:{ports[0]}?rank={rank}&world_size={world_size}"
    store, _, _ = next(rendezvous(url))
    store.set(f"own {rank}", "x")
    print("own store has", store.get(f"own {(rank + 1) % world_size}").decode(), flush=True)
    dist.barrier()


def train() -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).mean().backward()
        optimizer.step()
    print("weights", model.module.weight.detach().sum().item(), flush=True)


def main() -> None:
    if "nodes" in sys.argv:
        names = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR")
        print("place", *(os.environ[name] for name in names), flush=True)
        print("torch in", [name for name in os.environ if name.startswith("TORCH_ELASTIC")], flush=True)
    while os.environ["RANK"] != "0" and STOP.with_name("late").exists():
        time.sleep(0.02)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if "nodes" in sys.argv:
        use_groups(rank, world_size)
        use_own_store(rank, world_size)
        train()
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
    dist.barrier()
    if "rpc" in sys.argv:
        rpc.shutdown()
    dist.destroy_process_group()
    print("finished", flush=True)


if __name__ == "__main__":
    main()
