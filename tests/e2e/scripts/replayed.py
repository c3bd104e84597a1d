"""A training with dropout and batch norm whose digests are recorded: replayed.py WAY [--epochs N] [--lr LR].

If there is a file FLIP with a step, a rank and the name of a parameter, one bit of it flips after that step, once.
"""

import argparse
import contextlib
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.data import TensorDataset

from rekindle import DDPStrategy, Run, ShardedStrategy, SnapshotPolicy
from rekindle.recipes.training_context import process_group


def flip(path: Path, run: Run) -> None:
    if not path.exists():
        return
    step, rank, name = path.read_text().split()
    if (int(step), int(rank)) == (run.step + 1, run.rank):
        try:
            path.rename(path.with_suffix(".done"))
        except FileNotFoundError:  # it has flipped in another job
            return
        parameter = dict(run.module.named_parameters())[name].detach()
        local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        local.view(-1).view(torch.int32)[0] ^= 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=["ddp", "fsdp"])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--digests", type=int, default=1)
    parser.add_argument("--on-divergence", default="continue")
    parser.add_argument("--pause", type=float, default=0.0)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2))
    x = torch.randn(320, 6, generator=torch.Generator().manual_seed(1))
    joined = process_group() if options.way == "fsdp" else contextlib.nullcontext()
    with joined:
        if options.way == "fsdp":
            fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
        with Run(
            model=model,
            optimizer=optimizer,
            device="cpu",
            digests=options.digests,
            on_divergence=options.on_divergence,
            snapshot_policy=SnapshotPolicy(every_steps=5, keep_last=30),
            strategy=ShardedStrategy() if options.way == "fsdp" else DDPStrategy(),
        ) as run:
            for _ in run.epochs(options.epochs):
                for a, b in run.batches(TensorDataset(x, (x.sum(1) > 0).long()), global_batch=16):
                    optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(run.model(a), b) * run.batch_weight
                    loss.backward()
                    optimizer.step()
                    run.log(loss=loss)
                    flip(Path(os.environ.get("FLIP", "none")), run)
                    time.sleep(options.pause)
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
