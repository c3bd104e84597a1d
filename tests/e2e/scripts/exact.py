"""A training with everything that is easy to lose: dropout, batch norm, momentum, a schedule, metrics, augmentation.

A fault is a coordinate, given in the environment: FAULT="rank:step:kind". The kind is a signal that the rank sends to
itself in that step, or a call of its writer that ends it by SIGKILL, before (``publish``) or behind (``publish+``).
Snapshots fall on every third step, since each step waits for the one being written, unless LEAD says how many steps the
training is to be ahead of its writer; BALLAST makes them heavier by that many megabytes. Copies in shared memory come
at every step that can, if COPIES is set, else never. Each rank appends the ids of the samples of each finished step to
OUT/samples-<rank>.jsonl, and writes its digests to OUT/digest-<rank>.json at the end.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset
from torchmetrics.classification import MulticlassAccuracy

from rekindle import Run, SnapshotPolicy
from rekindle.training.snapshots import writer
from rekindle.training.snapshots.directory import SnapshotStorage
from rekindle.training.snapshots.snapshot_schedule import SnapshotSchedule

OUT = Path(os.environ["OUT"])
EPOCHS, CLASSES, FEATURES = 3, 4, 12


class Noisy(Dataset):
    """Clusters, with new noise each time a sample is read: an augmentation."""

    def __init__(self, length: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self._centres = torch.randn(CLASSES, FEATURES, generator=generator)
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        label = index % CLASSES
        return self._centres[label] + torch.randn(FEATURES) + random.gauss(0, 0.1), label, index


class Ballast:
    """What makes a snapshot heavy and changes nothing."""

    def __init__(self, megabytes: int) -> None:
        self._weight = torch.zeros(megabytes << 18)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"weight": self._weight}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self._weight.copy_(state["weight"])


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
    kind = fault_at(rank, step)
    if kind in signal.Signals.__members__:
        if "LEAD" in os.environ:  # the training may be far ahead of the first snapshot
            wait_until(lambda: list((OUT / "snapshots").glob("[0-9]*")))
        os.kill(os.getpid(), signal.Signals[kind])


def fault_at(rank: int, step: int) -> str:
    """What is to happen to ``rank`` at ``step``, or at any later one where FAULT says ``rank:>step:kind``."""
    where, _, kind = os.environ.get("FAULT", "-1:0:").rpartition(":")
    victim, _, when = where.partition(":")
    hit = step > int(when[1:]) if when.startswith(">") else step == int(when)
    return kind if int(victim) == rank and hit else ""


class WatchedWriter:
    """Lets the writing of a snapshot begin LEAD steps late, and die at the call that FAULT names."""

    def __init__(self, run: Run) -> None:
        self._run, self._step = run, 0
        self.lead = int(os.environ.get("LEAD", "0"))
        writer.SnapshotWriter.write = self._late(writer.SnapshotWriter.write)
        SnapshotSchedule.shm_due = lambda self, now: "COPIES" in os.environ
        for name in ("write_state", "write_manifest", "verify"):
            setattr(writer, name, self._mortal(name, getattr(writer, name)))
        for name in ("publish", "prune"):
            setattr(SnapshotStorage, name, self._mortal(name, getattr(SnapshotStorage, name)))

    def _late(self, write: Callable) -> Callable:
        def instead(writer: object, staged: writer.Staged) -> object:
            self._step = staged.step
            wait_until(lambda: self._run.step >= staged.step + self.lead, patience=0.3)
            with (OUT / f"leads-{self._run.rank}.jsonl").open("a") as leads:
                leads.write(json.dumps([staged.step, self._run.step - staged.step]) + "\n")
            return write(writer, staged)

        return instead

    def _mortal(self, name: str, call: Callable) -> Callable:
        def instead(*args: object, **kwargs: object) -> object:
            kind = fault_at(self._run.rank, self._step)
            if kind == name:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*args, **kwargs)
            if kind == f"{name}+":
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return instead


def wait_until(holds: Callable[[], bool], patience: float = 60.0) -> None:
    deadline = time.monotonic() + patience
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.001)


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
    extra = {"ballast": Ballast(int(os.environ["BALLAST"]))} if "BALLAST" in os.environ else {}
    with Run(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        metrics=metric,
        device="cpu",
        snapshot_policy=SnapshotPolicy(every_steps=3),
        **extra,
    ) as run:
        writer = WatchedWriter(run)
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
                if not writer.lead:
                    wait_until(lambda: not run._saver.snapshots.in_progress)
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
