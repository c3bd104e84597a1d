"""A training with slow steps and four loader workers on each rank; says every step it has finished."""

import time

import torch
from torch.utils.data import Dataset

from rekindle import Run

STEPS, BATCH, PAUSE = 2000, 8, 0.15


class Slow(Dataset):
    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.randn(4), index


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with Run(model=model, optimizer=optimizer, device="cpu") as run:
        for _ in run.epochs(1):
            for batch, _ in run.batches(Slow(), global_batch=BATCH, num_workers=4):
                optimizer.zero_grad()
                run.model(batch).square().mean().backward()
                time.sleep(PAUSE)
                optimizer.step()
                print(f"step {run.step + 1}", flush=True)


if __name__ == "__main__":
    main()
