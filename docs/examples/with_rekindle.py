"""The same training with ``rekindle.Run``: the step is saved, so the script has nothing to do."""

import argparse
import time

import torch
from torch.nn.functional import cross_entropy

import digits
from rekindle import Run


def main(epochs: int, pause: float) -> None:
    model = digits.build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with Run(model=model, optimizer=optimizer) as run:
        for epoch in run.epochs(epochs):
            for samples, pixels, labels in run.batches(digits.Digits(), global_batch=digits.BATCH * run.world_size):
                digits.trace(run.rank, run.step + 1, epoch, samples)
                loss = cross_entropy(run.model(pixels), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.log(loss=loss)
                time.sleep(pause)
        if run.rank == 0:
            print("weights", digits.digest(run.module))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--pause", type=float, default=0.03, help="seconds that a step takes longer")
    chosen = parser.parse_args()
    main(chosen.epochs, chosen.pause)
