"""Mistakes with replicas: ``apart`` trains the bare model, ``alike`` the model of the run; ``idle`` is plain DDP."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from rekindle import Run, SnapshotPolicy


class Idle(nn.Module):
    """A model with a layer that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


torch.manual_seed(0)
if sys.argv[1] == "idle":
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Idle())
    for _ in range(3):
        model(torch.randn(2, 4)).sum().backward()
else:
    bare = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(bare.parameters(), 0.1)
    data = TensorDataset(torch.randn(64, 4))
    with Run(model=bare, optimizer=optimizer, snapshot_policy=SnapshotPolicy(every_steps=4)) as run:
        for _ in run.epochs(2):
            for (x,) in run.batches(data, global_batch=8):
                optimizer.zero_grad()
                (bare if sys.argv[1] == "apart" else run.model)(x).square().mean().backward()
                optimizer.step()
