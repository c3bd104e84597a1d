"""Plain DDP on some ranks with a snapshot file of its own, as any script for torchrun. Knows nothing of rekindle.

Its arguments are faults, each "rank:step:kind", done once each: what has happened is noted next to the snapshot.
"""

import ctypes
import hashlib
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, EVERY = 30, 5
FOLDER = Path(os.environ.get("REKINDLE_SNAPSHOT_DIR", "."))
SNAPSHOT = FOLDER / "snapshot.pt"


def hurt(kind):
    match kind:
        case "raise":
            raise ValueError("planted")
        case "exit":
            sys.exit(3)
        case "vanish":
            os._exit(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segv":
            ctypes.string_at(0)


def maybe_hurt(rank, step):
    """Ranks that are to fail at the same step wait for one another, so that none is ended before its own fault."""
    planned = [fault.split(":") for fault in sys.argv[1:]]
    marks = {
        (int(where), kind): FOLDER / f"happened-{where}-{at}-{kind}" for where, at, kind in planned if int(at) == step
    }
    mine = [(kind, mark) for (where, kind), mark in marks.items() if where == rank and not mark.exists()]
    for kind, mark in mine:
        mark.touch()
        while not all(other.exists() for other in marks.values()):
            time.sleep(0.001)
        hurt(kind)


def save(model, optimizer, step):
    part = SNAPSHOT.with_suffix(".part")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, part)
    part.replace(SNAPSHOT)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    first = 1
    if SNAPSHOT.exists():
        state = torch.load(SNAPSHOT, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"] + 1
    parallel = DistributedDataParallel(model)
    for step in range(first, STEPS + 1):
        generator = torch.Generator().manual_seed(1000 * step + rank)
        batch = torch.randn(4, 8, generator=generator)
        optimizer.zero_grad()
        parallel(batch).square().mean().backward()
        maybe_hurt(rank, step)
        optimizer.step()
        print(f"step {step}", flush=True)
        time.sleep(0.02)
        if step % EVERY == 0:
            if rank == 0:
                save(model, optimizer, step)
            dist.barrier()
    if rank == 0:
        sha = hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values()))
        print(f"weights {sha.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
