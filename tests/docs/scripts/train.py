"""The training of the documented commands: like the README's, but slower, and over when somebody has seen enough."""

import argparse
import os
import time
from pathlib import Path

import torch
from torch import distributed
from torch.utils.data import TensorDataset

from rekindle import Run, SnapshotPolicy

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
options, _ = parser.parse_known_args()

torch.manual_seed(0)
inputs = torch.randn(1024, 8)
data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)


def seen_enough() -> bool:
    """The same in every rank."""
    enough = torch.tensor(int(Path(os.environ["SEEN_ENOUGH"]).exists()))
    distributed.all_reduce(enough)
    return bool(enough)


with Run(model=model, optimizer=optimizer, snapshot_policy=SnapshotPolicy(every_steps=10)) as run:
    for epoch in run.epochs(100_000):
        for x, y in run.batches(data, global_batch=256):
            loss = torch.nn.functional.mse_loss(run.model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss)
            time.sleep(0.05)
        print(f"epoch {epoch} loss {float(loss):.3g}", flush=True)
        if seen_enough():
            break
