"""A short training in slow steps whose number of ranks may change: the same bits on any of them.

resized.py STEPS SECONDS [FILE]: of one epoch, and of a step until there is a file FILE. Rank 0 prints each step that it
has finished and the weights at the end; each rank appends the ids of its samples to ``samples.jsonl`` of the snapshot
directory.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset

from rekindle import DeterministicElastic, Run
from rekindle.recipes.loop import weight_hash

STEPS, SECONDS, BATCH, EPOCHS = int(sys.argv[1]), float(sys.argv[2]), 8, 2
HURRY = Path(sys.argv[3] if len(sys.argv) > 3 else os.devnull + "/none")
SAMPLES = Path(os.environ["REKINDLE_SNAPSHOT_DIR"]) / "samples.jsonl"


class Numbers(Dataset):
    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((4,), index / len(self)) + 0.1 * torch.randn(4), index


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with Run(model=model, optimizer=optimizer, device="cpu", strategy=DeterministicElastic(4)) as run:
        for epoch in run.epochs(EPOCHS):
            for batch in run.batches(Numbers(), global_batch=BATCH):
                optimizer.zero_grad()
                ids = []
                for x, index in run.microbatches(batch):
                    (run.model(x).square().mean() * run.batch_weight).backward()
                    ids += index.tolist()
                optimizer.step()
                time.sleep(0 if HURRY.exists() else SECONDS)
                with SAMPLES.open("a") as file:
                    file.write(json.dumps([run.step + 1, epoch, run.world_size, ids]) + "\n")
                if run.rank == 0:
                    print(f"step {run.step + 1}", flush=True)
        if run.rank == 0:
            print(f"weights {weight_hash(run.module.state_dict().items())}", flush=True)


if __name__ == "__main__":
    main()
