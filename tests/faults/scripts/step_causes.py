"""Trains with one planted cause of slowness until it is stopped: ``plain`` by hand, or ``run``, by ``rekindle.Run``."""

import io
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CAUSE, WAY = sys.argv[1:3]
RANK = int(os.environ["RANK"])
torch.set_num_threads(1)


class Samples(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        if CAUSE == "loader":
            time.sleep(0.006)
        return torch.full((256 if CAUSE == "lengths" and RANK == 1 else 32, 64), float(index % 3))


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 64))

    def forward(self, x):
        if CAUSE == "rank" and RANK == 1:
            time.sleep(0.04)
        return self.layers(x)


class SlowFile(io.BytesIO):
    def write(self, data):
        time.sleep(len(data) / 5e6)
        return super().write(data)


def step(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()


def train_by_hand():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Layers())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(Samples(), batch_size=8, sampler=DistributedSampler(Samples()))
    while True:
        for number, batch in enumerate(loader):
            step(model, optimizer, batch)
            if CAUSE == "disk" and RANK == 0 and number % 5 == 4:
                torch.save(model.state_dict(), SlowFile())


def train_by_run():
    from rekindle import Run, SnapshotPolicy

    if CAUSE == "disk":
        sync, policy = os.fsync, SnapshotPolicy(every_epochs=1)
        os.fsync = lambda fd: (time.sleep(0.1), sync(fd))
    else:
        policy = SnapshotPolicy(every_steps=1 << 30)
    model = Layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with Run(model=model, optimizer=optimizer, device="cpu", snapshot_policy=policy, digests=0) as run:
        for _ in run.epochs(1 << 20):
            for batch in run.batches(Samples(), global_batch=16):
                step(run.model, optimizer, batch)


if __name__ == "__main__":
    train_by_run() if WAY == "run" else train_by_hand()
