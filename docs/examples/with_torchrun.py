"""Plain PyTorch, as its tutorial on fault-tolerant training has it: a file of its own at the end of every epoch."""

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import digits

SNAPSHOT = Path("snapshot.pt")


def main(epochs: int, pause: float) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(digits.build())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    first = 0
    if SNAPSHOT.exists():
        saved = torch.load(SNAPSHOT, weights_only=True)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epochs"]
    data = digits.Digits()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, digits.BATCH, sampler=sampler)
    for epoch in range(first, epochs):
        sampler.set_epoch(epoch)
        for number, (samples, pixels, labels) in enumerate(loader, start=1):
            digits.trace(rank, epoch * len(loader) + number, epoch, samples)
            optimizer.zero_grad()
            cross_entropy(model(pixels), labels).backward()
            optimizer.step()
            time.sleep(pause)
        if rank == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epoch + 1}
            torch.save(state, SNAPSHOT.with_suffix(".tmp"))
            SNAPSHOT.with_suffix(".tmp").replace(SNAPSHOT)
    if rank == 0:
        print("weights", digits.digest(model))
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--pause", type=float, default=0.03, help="seconds that a step takes longer")
    chosen = parser.parse_args()
    main(chosen.epochs, chosen.pause)
