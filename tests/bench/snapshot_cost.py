"""What snapshots every 20 steps take from a training: its speed, the disk, the memory, and the time to come back.

    OMP_NUM_THREADS=1 python tests/bench/snapshot_cost.py --blocks 12

ResNet-34 with momentum (170 MB) in a world of one on the CPU, one thread. A block is 20 steps; in every other block a
snapshot is begun at its first step and written meanwhile, and the block ends when it is on disk. So blocks with and
without see the same machine, and what writing takes from the training is in the figures. The first pair of blocks
fills buffers and does not count. Restoring is measured against a ``torch.load`` of the same file, which checks nothing.
"""

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from snapshot_stall import State, trained_model
from torch import nn

from rekindle import Snapshots

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Training:
    """The steps of a block, and the snapshots taken in some of them."""

    def __init__(self, directory: Path, options: argparse.Namespace) -> None:
        self.model, self.optimizer = trained_model()
        self.snapshots = Snapshots(directory)
        self._batch = torch.randn(options.batch, 3, options.size, options.size)
        self._steps: int = options.steps
        self._taken = 0

    def state(self) -> State:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def block(self, *, snapshot: bool) -> tuple[float, float]:
        """Seconds and processor seconds."""
        started, busy = time.monotonic(), time.process_time()
        if snapshot:
            self._taken += 1
            self.snapshots.async_save(self._taken, 0, self.state(), {})
        for _ in range(self._steps):
            self._step()
        self.snapshots.wait()
        return time.monotonic() - started, time.process_time() - busy

    def _step(self) -> None:
        """Draw new labels each time: what can be learnt by heart ends in denormal numbers, which take ages."""
        self.optimizer.zero_grad()
        labels = torch.randint(1000, (len(self._batch),))
        nn.functional.cross_entropy(self.model(self._batch), labels).backward()
        self.optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12, help="with snapshots, and as many without")
    parser.add_argument("--steps", type=int, default=20, help="of a block")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=64, help="of an image, in pixels")
    parser.add_argument("--directory", help="on the disk to be measured; default: a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        training = Training(Path(directory), options)
        training.block(snapshot=False)
        before = memory()
        training.block(snapshot=True)
        grown = memory() - before
        pairs = [(training.block(snapshot=False), training.block(snapshot=True)) for _ in range(options.blocks)]
        report_speed(pairs, options.steps)
        latest = max(Path(directory).iterdir())
        size = sum(file.stat().st_size for file in latest.iterdir())
        print(f"bytes written per snapshot  {size / 1e6:8.1f} MB in {len(list(latest.iterdir()))} files")
        print(f"memory more with snapshots  {grown / 1e6:8.1f} MB, {peak() / 1e6:.0f} MB at the most in all")
        report_restore(training, latest)
    print(f"load of the machine         {os.getloadavg()[0]:8.1f} on {os.cpu_count()} cores")


def report_speed(pairs: list[tuple[tuple[float, float], tuple[float, float]]], steps: int) -> None:
    """Each block with a snapshot is compared with the mean of the ones before and behind it."""
    free = [without[0] for without, _ in pairs]
    ratios = [(one + next_one) / 2 / pairs[number][1][0] for number, (one, next_one) in enumerate(pairwise(free))]
    processor = statistics.median(with_one[1] - without[1] for without, with_one in pairs)
    print(f"a step without snapshots    {statistics.median(free) / steps * 1e3:8.1f} ms")
    print(f"speed with one every {steps:3}    {statistics.median(ratios):8.3f} of that without")
    print(f"processor time of one       {processor * 1e3:8.0f} ms, the copy and the writing beside the training")


def report_restore(training: Training, latest: Path) -> None:
    def ours() -> None:
        restored = training.snapshots.restore()
        assert restored is not None, "a snapshot was committed"

    def plain() -> None:
        torch.load(latest / "model.pt", weights_only=True)

    both = [(seconds(ours), seconds(plain)) for _ in range(7)][1:]
    restore, load = (statistics.median(column) for column in zip(*both, strict=True))
    print(f"restore, checksums verified {restore * 1e3:8.0f} ms, torch.load {load * 1e3:.0f} ms")


def seconds(call: Callable[[], None]) -> float:
    started = time.monotonic()
    call()
    return time.monotonic() - started


def memory() -> int:
    """Bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


if __name__ == "__main__":
    main()
