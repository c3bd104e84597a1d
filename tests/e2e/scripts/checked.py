"""A training that goes wrong after step 160: checked.py FAULT [--on-nan WAY].

FAULT: ``device NAME`` makes a weight infinite on the GPU of this UUID, ``once FILE`` multiplies one, once, if there is
the file, ``noise`` adds to each step what no seed determines.
"""

import argparse
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from rekindle import Run, SnapshotPolicy

STEP = 160


def go_wrong(weight: torch.Tensor, fault: str, value: str, step: int) -> None:
    if fault == "noise":
        weight[0] += int.from_bytes(os.urandom(2)) / 1e6
    if step != STEP:
        return
    if fault == "device" and os.environ["CUDA_VISIBLE_DEVICES"] == value:
        weight[0] = float("inf")
    if fault == "once" and (mark := Path(value)).exists():
        mark.unlink()
        weight *= 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("fault")
    parser.add_argument("value", nargs="?", default="")
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--until", default="")  # this file exists
    options = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Linear(6, 2)
    x = torch.randn(20 * 16, 6, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    policy = SnapshotPolicy(every_steps=50, keep_last=2)
    with Run(model=model, optimizer=optimizer, device="cpu", snapshot_policy=policy) as run:
        for _ in run.epochs(options.steps // 20):
            for a, b in run.batches(TensorDataset(x, (x.sum(1) > 0).long()), global_batch=16):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(run.model(a), b)
                loss.backward()
                optimizer.step()
                run.log(loss=loss)
                go_wrong(model.weight.detach().view(-1), options.fault, options.value, run.step + 1)
                if options.until and run.step + 1 >= STEP + 5:  # what was logged is written with every later step
                    time.sleep(0.0 if Path(options.until).exists() else 0.6)


if __name__ == "__main__":
    main()
