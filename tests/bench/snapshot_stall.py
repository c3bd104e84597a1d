"""How long a snapshot keeps the training waiting: ours, a durable ``torch.save``, torch's own asynchronous save.

    OMP_NUM_THREADS=1 python tests/bench/snapshot_stall.py --snapshots 20

ResNet-34 with momentum (170 MB) in a world of one on the CPU. The methods take turns, so that all see the same
machine; between two snapshots the model computes until the last one is written. The first round fills buffers and does
not count. ``durable`` is when the method's own word says that the snapshot is safe; torch's asynchronous save fsyncs
its files and not their directory, and checks nothing.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torchvision.models import resnet34

from rekindle import Snapshots
from rekindle.contract.files import fsync_directory

State = dict[str, Any]
Save = Callable[[int, State], Callable[[], bool]]
"""Saves the state of a step; what it returns says whether the snapshot is durable."""


@dataclass
class Figures:
    """Seconds."""

    blocked: list[float] = field(default_factory=list)
    durable: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)  # of training while the snapshot was written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshots", type=int, default=20)
    parser.add_argument("--directory", help="on the disk to be measured; default: a temporary one")
    options = parser.parse_args()
    figures, plain_step = compared(resnet34(), options.snapshots, options.directory)
    report(figures, plain_step)


def compared(model: torch.nn.Module, snapshots: int, on_disk: str | None = None) -> tuple[dict[str, Figures], float]:
    """The figures of each method, and the seconds of a step without any snapshot."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    train(model, optimizer)
    with tempfile.TemporaryDirectory(dir=on_disk) as directory:
        methods = {
            "rekindle": ours(Path(directory)),
            "torch.save, fsync, rename": durable_torch_save(Path(directory)),
            "async_save": torch_async_save(Path(directory), "default", None),
            "async_save, reused stager": torch_async_save(
                Path(directory), "reused", DefaultStager(StagingOptions(False, False, False, False))
            ),
        }
        figures = {name: Figures() for name in methods}
        for number in range(snapshots + 1):
            for name, save in methods.items():
                measure(save, number, model, optimizer, figures[name])
    dist.destroy_process_group()
    return figures, statistics.median(train(model, optimizer) for _ in range(5))


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """One small step, in seconds."""
    started = time.monotonic()
    optimizer.zero_grad()
    model(torch.randn(2, 3, 64, 64)).sum().backward()
    optimizer.step()
    return time.monotonic() - started


def measure(
    save: Save, number: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer, figures: Figures
) -> None:
    started = time.monotonic()
    durable = save(number, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    blocked = time.monotonic() - started
    steps = []
    while not durable():
        steps.append(train(model, optimizer))
    if number > 0:
        figures.blocked.append(blocked)
        figures.durable.append(time.monotonic() - started)
        figures.step += steps


def ours(directory: Path) -> Save:
    snapshots = Snapshots(directory / "ours")

    def save(number: int, state: State) -> Callable[[], bool]:
        snapshots.async_save(number, 0, state, {})

        def durable() -> bool:
            if snapshots.in_progress:
                return False
            result = snapshots.wait()
            return result is not None and result.saved

        return durable

    return save


def durable_torch_save(directory: Path) -> Save:
    def save(number: int, state: State) -> Callable[[], bool]:
        temporary = directory / "snapshot.tmp"
        with temporary.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(directory / "snapshot.pt")
        fsync_directory(directory)
        return lambda: True

    return save


def torch_async_save(directory: Path, name: str, stager: DefaultStager | None) -> Save:
    def save(number: int, state: State) -> Callable[[], bool]:
        place = directory / f"{name}-{number % 2}"
        with suppress(FileNotFoundError):
            for entry in place.iterdir():
                entry.unlink()
        saved = dcp.async_save(state, checkpoint_id=place, async_stager=stager)
        if not isinstance(saved, Future):
            saved = saved.upload_completion
        return saved.done

    return save


def report(figures: dict[str, Figures], plain_step: float) -> None:
    ours = statistics.median(figures["rekindle"].blocked)
    print(f"{'':26} {'blocked, ms':>18}   {'':>6}   {'durable, ms':>11}   {'step meanwhile':>14}")
    print(f"{'':26} {'median':>8} {'p95':>9}   {'ratio':>6}   {'median':>11}   {'to a free one':>14}")
    for name, each in figures.items():
        blocked, late = statistics.median(each.blocked), statistics.quantiles(each.blocked, n=20)[-1]
        slower = f"{statistics.median(each.step) / plain_step:.2f}" if each.step else "-"
        print(
            f"{name:26} {blocked * 1e3:8.1f} {late * 1e3:9.1f}   {blocked / ours:6.1f}"
            f"   {statistics.median(each.durable) * 1e3:11.0f}   {slower:>14}"
        )


if __name__ == "__main__":
    main()
