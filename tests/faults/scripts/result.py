"""Trains three steps with ``Run``, and takes away the disk's room before the last snapshot, or waits after the end.

result.py wait | full DISK SECONDS, which are how long it waits for room
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from rekindle import Run, SnapshotPolicy
from rekindle.training import step_boundary


def take_all_room(disk: Path) -> None:
    with (disk / "ballast").open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def main() -> None:
    disk = Path(sys.argv[2]) if sys.argv[1] == "full" else None
    if disk is not None:
        step_boundary.RESULT_TIMEOUT = float(sys.argv[3])
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 50_000)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.ones(3, 1))
    policy = SnapshotPolicy(every_steps=1, keep_last=9)
    with Run(model=model, optimizer=optimizer, device="cpu", directory=disk, snapshot_policy=policy) as run:
        for _ in run.epochs(1):
            for (x,) in run.batches(data, global_batch=1):
                run.model(x).mean().backward()
                optimizer.step()
                time.sleep(0.2)  # longer than a snapshot takes
                if run.step == 2 and disk is not None:
                    take_all_room(disk)
    if sys.argv[1] == "wait":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        print("step 1", flush=True)
        time.sleep(600)
    print("attempt", os.environ["REKINDLE_ATTEMPT"], "ended")


if __name__ == "__main__":
    main()
