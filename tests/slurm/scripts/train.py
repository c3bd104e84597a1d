"""A training with everything that is easy to lose, and PACE seconds of pause after each step: EPOCHS of 7 steps.

Each rank appends number, epoch, sample ids and loss of each finished step to OUT/steps-<attempt>-<rank>.jsonl, and
writes its digest to OUT/digest-<rank>.json at the end. Snapshots every third step.
"""

import hashlib
import json
import os
import random
import socket
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset

from rekindle import Run, SnapshotPolicy

OUT = Path(os.environ["OUT"])
EPOCHS, PACE = int(os.environ["EPOCHS"]), float(os.environ["PACE"])
CLASSES, FEATURES, LENGTH, BATCH = 4, 12, 101, 16


class Noisy(Dataset):
    """Clusters, with new noise each time a sample is read: an augmentation."""

    def __init__(self) -> None:
        self._centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        label = index % CLASSES
        return self._centres[label] + torch.randn(FEATURES) + random.gauss(0, 0.1), label, index


def digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    momenta = {str(index): each["momentum_buffer"] for index, each in optimizer.state_dict()["state"].items()}
    sha = hashlib.sha256()
    for name, value in sorted((model.state_dict() | momenta).items()):
        sha.update(name.encode() + value.contiguous().numpy().tobytes())
    return sha.hexdigest()


def main() -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(FEATURES, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, CLASSES)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=EPOCHS * 7)
    policy = SnapshotPolicy(every_steps=3)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    with Run(**parts, device="cpu", snapshot_policy=policy) as run:
        print(f"rank {run.rank} of {run.world_size} on {socket.gethostname()}", flush=True)
        attempt = os.environ.get("REKINDLE_ATTEMPT", "1")
        steps = (OUT / f"steps-{attempt}-{run.rank}.jsonl").open("a", buffering=1)
        for epoch in run.epochs(EPOCHS):
            for x, y, index in run.batches(Noisy(), global_batch=BATCH):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(run.model(x), y) * run.batch_weight
                loss.backward()
                optimizer.step()
                scheduler.step()
                run.log(loss=loss)
                steps.write(json.dumps([run.step + 1, epoch, index.tolist(), loss.item()]) + "\n")
                time.sleep(PACE)
        own = {"weights": digest(model, optimizer), "draws": torch.rand(3).tolist(), "step": run.step}
        (OUT / f"digest-{run.rank}.json").write_text(json.dumps(own))


if __name__ == "__main__":
    main()
