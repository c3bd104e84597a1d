"""A training with everything that is easy to lose: dropout, batch norm, momentum, a schedule, metrics, augmentation.

A fault is a coordinate, given in the environment: FAULT="rank:step:kind". Each rank appends the ids of the samples of
each finished step to OUT/samples-<rank>.jsonl, and writes its digests to OUT/digest-<rank>.json at the end.
"""

import hashlib
import json
import os
import random
import signal
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset
from torchmetrics.classification import MulticlassAccuracy

from rekindle import Cadence, Run

OUT = Path(os.environ["OUT"])
EPOCHS, CLASSES, FEATURES = 3, 4, 12


class Noisy(Dataset):
    """Clusters, with noise drawn anew at every look: an augmentation."""

    def __init__(self, length: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self._centres = torch.randn(CLASSES, FEATURES, generator=generator)
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        label = index % CLASSES
        return self._centres[label] + torch.randn(FEATURES) + random.gauss(0, 0.1), label, index


def digest(*states: object) -> str:
    sha = hashlib.sha256()
    for state in states:
        for name, value in sorted(flat(state).items()):
            data = value.contiguous().numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value).encode()
            sha.update(name.encode() + data)
    return sha.hexdigest()


def flat(state: object, prefix: str = "") -> dict[str, object]:
    if isinstance(state, dict):
        return {k: v for key, item in state.items() for k, v in flat(item, f"{prefix}/{key}").items()}
    if isinstance(state, list):
        return flat(dict(enumerate(state)), prefix)
    return {prefix: state}


def fault(rank: int, step: int) -> None:
    where = os.environ.get("FAULT", "")
    if not where.startswith(f"{rank}:{step}:"):
        return
    kind = where.rpartition(":")[2]
    if kind == "drain":
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        os.kill(os.getpid(), signal.Signals[kind])


def main() -> None:
    torch.manual_seed(0)
    width = int(os.environ.get("WIDTH", "64"))
    layers = [nn.Linear(FEATURES, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3)]
    for _ in range(3):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    length, batch, workers = 101, 16, int(os.environ.get("WORKERS", "0"))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=EPOCHS * 7)
    metric = MulticlassAccuracy(CLASSES)
    with Run(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        metrics=metric,
        device="cpu",
        cadence=Cadence(every_steps=3),
    ) as run:
        samples = (OUT / f"samples-{run.rank}.jsonl").open("a", buffering=1)
        losses = (OUT / f"losses-{run.rank}.jsonl").open("a", buffering=1)
        results = {}
        for epoch in run.epochs(EPOCHS):
            metric.reset()
            torch.rand(3)  # code before the batches draws too
            for x, y, index in run.batches(Noisy(length), global_batch=batch, num_workers=workers):
                optimizer.zero_grad()
                logits = run.model(x)
                loss = nn.functional.cross_entropy(logits, y) * run.batch_weight
                loss.backward()
                fault(run.rank, run.step + 1)
                optimizer.step()
                scheduler.step()
                metric.update(logits, y)
                run.log(loss=loss)
                samples.write(json.dumps([run.step + 1, epoch, index.tolist()]) + "\n")
                losses.write(json.dumps([run.step + 1, loss.item()]) + "\n")
            results[epoch] = metric.compute().item()
        own = {"weights": digest(model.state_dict(), optimizer.state_dict()), "accuracy": results, "step": run.step}
        own["rng"] = digest({"torch": torch.get_rng_state(), "python": list(random.getstate()[1])})
        (OUT / f"digest-{run.rank}.json").write_text(json.dumps(own))
        sys.stdout.write(f"[rank {run.rank}] {own}\n")


if __name__ == "__main__":
    main()
