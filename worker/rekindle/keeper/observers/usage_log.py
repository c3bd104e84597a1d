"""What an attempt's ranks and GPUs use, appended every few seconds to a file of bounded size.

All of it is read from /proc and from the GPU driver: it disturbs no rank.
"""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from rekindle.contract import nvml
from rekindle.contract.files import append_line, atomic_write
from rekindle.contract.processes import cpu_seconds, stat_fields
from rekindle.contract.run_dir.usage import GpuUsage, RankUsage, UsageSample
from rekindle.keeper.attempt_result import RankResult
from rekindle.keeper.ranks.processes import descendants

INTERVAL = 5.0  # seconds
MAX_BYTES = 2 << 20
"""Of the file. When it has more, every second line is dropped: the older the usage, the coarser its history."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_RSS = 21  # of ``stat_fields``


class UsageLog:
    """One per attempt, written by its keeper only. No fsync: it means nothing to a resume."""

    def __init__(self, path: Path, gpus: Sequence[str], library: str = nvml.LIBRARY) -> None:
        """``gpus``: those of the job, as in CUDA_VISIBLE_DEVICES."""
        self._path, self._gpus, self._library = path, gpus, library
        self._next_sample = 0.0  # seconds of CLOCK_MONOTONIC
        self._before: dict[int, tuple[float, float]] = {}  # pid → time of its last sample, its processor seconds then

    def sample_if_due(self, ranks: Iterable[RankResult]) -> None:
        """Append a line about the running ranks. One that cannot be written (a full disk) is a gap, no failure."""
        now = time.monotonic()
        if now < self._next_sample:
            return
        self._next_sample = now + INTERVAL
        running = [rank for rank in ranks if rank.ended_at is None and rank.identity.alive()]
        sample = UsageSample(time.time(), [self._of_rank(rank) for rank in running], self._of_gpus())
        with suppress(OSError):
            append_line(self._path, sample.to_json(), durable=False)
            if self._path.stat().st_size > MAX_BYTES:
                lines = self._path.read_bytes().splitlines(keepends=True)
                atomic_write(self._path, b"".join(lines[1::2]), durable=False)

    def _of_rank(self, rank: RankResult) -> RankUsage:
        """Of the rank's process and everything that it has started."""
        tree = (rank.pid, *descendants(rank.pid))
        cpu, now = sum(cpu_seconds(pid, with_children=True) for pid in tree), time.monotonic()
        sampled_at, cpu_before = self._before.get(rank.pid, (now, cpu))
        self._before[rank.pid] = now, cpu
        percent = None
        if now > sampled_at:
            percent = round(100 * max(0.0, cpu - cpu_before) / (now - sampled_at), 1)
        disk = [_disk_bytes(pid) for pid in tree]
        read, written = sum(bytes_read for bytes_read, _ in disk), sum(bytes_written for _, bytes_written in disk)
        return RankUsage(rank.rank, percent, sum(map(_rss_bytes, tree)), read, written)

    def _of_gpus(self) -> list[GpuUsage]:
        readings = enumerate(nvml.read_gpus(self._gpus, self._library))
        return [GpuUsage(index, *astuple(reading)) for index, reading in readings if reading is not None]


def _rss_bytes(pid: int) -> int:
    fields = stat_fields(pid)
    return 0 if fields is None else int(fields[_RSS]) * _PAGE


def _disk_bytes(pid: int) -> tuple[int, int]:
    """Bytes read from and written to disks for ``pid``; zeros where the kernel does not show them."""
    with suppress(OSError, ValueError, KeyError):
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        counters = dict(line.split(": ") for line in lines)
        return int(counters["read_bytes"]), int(counters["write_bytes"])
    return 0, 0
