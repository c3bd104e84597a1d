"""What several ranks must agree on; each prints what it found as a line of JSON. Runs in the current directory.

agreeing.py draws         a random number, drawn within a run whose ranks share each batch
agreeing.py snapshots     how saves and restores end that go wrong on rank 1 alone
"""

import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from rekindle import Run, SnapshotPolicy, Snapshots
from rekindle.recipes.training_context import process_group
from rekindle.training.process_group import World
from rekindle.training.sharded_strategy import ShardedStrategy
from rekindle.training.snapshots import shared_memory, writer

BALLAST = 1 << 20  # bytes of each rank


class Odd:
    """Nothing that torch would load."""


def draws() -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    snapshot_policy = SnapshotPolicy(every_steps=1)
    with Run(
        model=model,
        optimizer=optimizer,
        device="cpu",
        snapshot_policy=snapshot_policy,
        strategy=ShardedStrategy(same_batch=True),
    ) as run:
        print(json.dumps({"step": run.step, "draw": torch.rand(()).item()}))
        for _ in run.epochs(run.step + 1):
            for (x,) in run.batches(TensorDataset(torch.ones(2, 2)), global_batch=2):
                run.model(x).sum().backward()
                optimizer.step()


def snapshots() -> None:
    with process_group() as world:
        saved = Snapshots("snapshots", shm=Path("memory"))
        found = {"together": [copied(saved, 1, free=5), copied(saved, 2, free=3)]}
        save(saved, world, 10)
        with torch.serialization.safe_globals([Odd]):
            saved.save(20, 0, {"model": {}}, {"odd": Odd()} if world.rank == 1 else {})
        restored = saved.restore()
        found["restored"] = [restored.step, [each.step for each in restored.skipped]]
        if world.rank == 1:
            writer.write_state = fail
        found["problem"] = save(saved, world, 30)
        print(json.dumps(found))


def copied(saved: Snapshots, step: int, *, free: int) -> bool:
    """Save into memory in which ``free`` times the ballast of one rank is free."""
    shared_memory._available_memory = lambda: free * BALLAST
    saved.async_save(step, 0, {"model": {}}, {"ballast": torch.zeros(BALLAST // 4)}, to_shm=True)
    return saved.wait().saved


def save(saved: Snapshots, world: World, step: int) -> str | None:
    return saved.save(step, 0, {"model": {}}, {"rank": world.rank}).problem


def fail(*args: object) -> None:
    raise ZeroDivisionError("odd")


def main() -> None:
    {"draws": draws, "snapshots": snapshots}[sys.argv[1]]()


if __name__ == "__main__":
    main()
