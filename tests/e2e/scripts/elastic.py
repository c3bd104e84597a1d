"""A training whose world size may change at every start, with all that would betray it: noise, dropout, a norm.

Runs in the current directory. FAULT="rank:step:signal" in the environment is a signal that the rank sends to itself.
Each rank appends the ids of the samples of each finished step to ``samples-<ranks>-<rank>.jsonl``; rank 0 appends the
logged losses to ``losses.jsonl``, saves the gradient of the first step in ``gradient.pt``, and writes its digests to
``digest.json`` at the end.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from torchmetrics.classification import MulticlassAccuracy

from rekindle import DeterministicElastic, Run, SnapshotPolicy
from rekindle.contract.run_dir.rank_records import MetricPoint
from rekindle.recipes.loop import weight_hash
from rekindle.training.reporter import Reporter
from rekindle.training.strategy import DDPStrategy

EPOCHS, CLASSES, SIDE, BATCH, LENGTH = 3, 4, 6, 32, 203


class Noisy(Dataset):
    """Small images in clusters, with new noise each time a sample is read: an augmentation."""

    def __init__(self) -> None:
        self._centres = torch.randn(CLASSES, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        label = index % CLASSES
        return self._centres[label] + 0.5 * torch.randn(1, SIDE, SIDE) + random.gauss(0, 0.1), label, index


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", choices=["replicas", "elastic"], default="elastic")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
    parser.add_argument("--norm", choices=["batch", "group"], default="batch")
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--workers", type=int, default=0)
    return parser.parse_args()


def build(options: argparse.Namespace) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(8) if options.norm == "batch" else nn.GroupNorm(2, 8)
    head = nn.Dropout(options.dropout), nn.Linear(8 * (SIDE - 2) ** 2, CLASSES)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), norm, nn.ReLU(), nn.Flatten(), *head)
    if options.optimizer == "sgd":
        return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    return model, torch.optim.AdamW(model.parameters(), lr=2e-3)


def fault(rank: int, step: int) -> None:
    victim, when, kind = os.environ.get("FAULT", "-1:0:SIGTERM").split(":")
    if (int(victim), int(when)) == (rank, step):
        os.kill(os.getpid(), signal.Signals[kind])


def write(name: str, entry: object) -> None:
    with Path(name).open("a") as file:
        file.write(json.dumps(entry) + "\n")


def note_losses() -> None:
    measure = Reporter.log_metrics

    def instead(reporter: Reporter, point: MetricPoint) -> None:
        if "loss" in point.values and os.environ.get("RANK", "0") == "0":
            write("losses.jsonl", [point.step, point.values["loss"]])
        measure(reporter, point)

    Reporter.log_metrics = instead


def main() -> None:
    options = read_options()
    note_losses()
    model, optimizer = build(options)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    accuracy = MulticlassAccuracy(CLASSES, average="micro")
    with Run(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        metrics=accuracy,
        device="cpu",
        snapshot_policy=SnapshotPolicy(every_steps=2),
        strategy=DeterministicElastic(options.shards) if options.method == "elastic" else DDPStrategy(),
    ) as run:
        accuracies = []
        for _ in run.epochs(EPOCHS):
            accuracy.reset()
            train_epoch(run, optimizer, accuracy, options)
            scheduler.step()
            accuracies.append(accuracy.compute().item())
        if run.rank == 0:
            finish(run, optimizer, accuracies)


def train_epoch(
    run: Run, optimizer: torch.optim.Optimizer, accuracy: MulticlassAccuracy, options: argparse.Namespace
) -> None:
    shift = torch.rand(1)  # code before the batches draws too
    for batch in run.batches(Noisy(), global_batch=BATCH, num_workers=options.workers):
        brightness = 1 + 0.1 * torch.rand(1) + 0.1 * shift if options.dropout else torch.ones(1)
        optimizer.zero_grad()
        ids = []
        for x, y, index in run.microbatches(batch):
            logits = run.model(x * brightness)
            loss = nn.functional.cross_entropy(logits, y)
            (loss * run.batch_weight).backward()
            accuracy.update(logits, y)
            run.log(loss=loss)
            ids += index.tolist()
        if run.step == 0 and run.rank == 0:
            torch.save([each.grad for each in run.module.parameters()], "gradient.pt")
        nn.utils.clip_grad_norm_(run.module.parameters(), 5.0)
        while run._saver.snapshots.in_progress:  # so that a snapshot falls on every second step
            time.sleep(0.001)
        fault(run.rank, run.step + 1)
        optimizer.step()
        write(f"samples-{run.world_size}-{run.rank}.jsonl", [run.step + 1, run.epoch, ids])


def finish(run: Run, optimizer: torch.optim.Optimizer, accuracies: list[float]) -> None:
    momenta = [
        (f"{place}/{name}", value)
        for place, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
        if isinstance(value, Tensor)
    ]
    digest = weight_hash([*run.module.state_dict().items(), *momenta])
    Path("digest.json").write_text(json.dumps({"weights": digest, "step": run.step, "accuracy": accuracies}))
    sys.stdout.write(f"weights sha256 {digest}\n")


if __name__ == "__main__":
    main()
