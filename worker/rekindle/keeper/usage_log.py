"""What an attempt's ranks and GPUs use, written down every few seconds into a file of bounded size."""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from rekindle.contract.files import append_line, atomic_write
from rekindle.contract.run_dir.usage import GpuUsage, RankUsage, UsageSample
from rekindle.keeper import nvml
from rekindle.keeper.facts import RankFacts
from rekindle.keeper.process_usage import usage_below

LOOK_EVERY = 5.0  # seconds
MOST_BYTES = 2 << 20
"""Of the file. When it has more, every second line is dropped: what lies long ago is told ever more coarsely."""


class UsageLog:
    """One per attempt, written by its keeper only. No fsync: it means nothing to a resume."""

    def __init__(self, path: Path, gpus: Sequence[str], library: str = nvml.LIBRARY) -> None:
        """``gpus``: those of the job, as in CUDA_VISIBLE_DEVICES."""
        self._path, self._gpus, self._library = path, gpus, library
        self._next_look = 0.0  # seconds of CLOCK_MONOTONIC
        self._before: dict[int, tuple[float, float]] = {}  # pid → when it was looked at, its processor seconds then

    def look_if_due(self, ranks: Iterable[RankFacts]) -> None:
        """Add a line about the ranks that run. One that cannot be written (a full disk) is a gap, no failure."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_EVERY
        running = [rank for rank in ranks if rank.ended_at is None and rank.identity.alive()]
        sample = UsageSample(time.time(), [self._of_rank(rank) for rank in running], self._of_gpus())
        with suppress(OSError):
            append_line(self._path, sample.to_json(), durable=False)
            self._keep_within_bound()

    def _of_rank(self, rank: RankFacts) -> RankUsage:
        usage, now = usage_below(rank.pid), time.monotonic()
        before = self._before.get(rank.pid)
        self._before[rank.pid] = now, usage.cpu_seconds
        percent = None
        if before is not None and now > before[0]:
            percent = round(100 * max(0.0, usage.cpu_seconds - before[1]) / (now - before[0]), 1)
        return RankUsage(rank.rank, percent, usage.rss_bytes, usage.read_bytes, usage.written_bytes)

    def _of_gpus(self) -> list[GpuUsage]:
        if not self._gpus:
            return []
        found: list[GpuUsage] = []
        with suppress(OSError), nvml.opened(self._library) as library:
            for index, name in enumerate(self._gpus):
                with suppress(OSError):
                    found.append(_use(index, nvml.find(library, name)))
        return found

    def _keep_within_bound(self) -> None:
        if self._path.stat().st_size <= MOST_BYTES:
            return
        lines = self._path.read_bytes().splitlines(keepends=True)
        atomic_write(self._path, b"".join(lines[1::2]), durable=False)


def _use(index: int, gpu: nvml.Gpu) -> GpuUsage:
    used, total = gpu.memory()
    return GpuUsage(index, gpu.utilization(), used, total, gpu.temperature(), gpu.power())
