"""A tiny training that takes its time: what a fault costs shows in steps, not in work."""

import os
import sys
import time

import torch
from torch.utils.data import TensorDataset

from rekindle import Run


def main() -> None:
    steps, pause = int(sys.argv[1]), float(sys.argv[2])
    torch.manual_seed(0)
    inputs = torch.randn(8 * steps, 4)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    print(f"rank {os.environ['RANK']} trains {steps} steps", flush=True)
    with Run(model=model, optimizer=optimizer, device="cpu") as run:
        for _ in run.epochs(1):
            for x, y in run.batches(data, global_batch=8):
                loss = torch.nn.functional.mse_loss(run.model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.log(loss=loss)
                time.sleep(pause)


if __name__ == "__main__":
    main()
