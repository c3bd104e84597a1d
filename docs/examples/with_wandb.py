"""W&B: nothing to do. Every attempt of a job has the same id in its environment, and continues the same run."""

import time
from pathlib import Path

import torch
import wandb

SNAPSHOT, STEPS = Path("snapshot.pt"), 60


def main() -> None:
    first = torch.load(SNAPSHOT, weights_only=True)["steps"] if SNAPSHOT.exists() else 0
    with wandb.init(project="digits") as run:
        for step in range(first, STEPS):
            run.log({"loss": 1 / (step + 1)}, step=step)
            torch.save({"steps": step + 1}, SNAPSHOT.with_suffix(".tmp"))
            SNAPSHOT.with_suffix(".tmp").replace(SNAPSHOT)
            time.sleep(0.05)


if __name__ == "__main__":
    main()
