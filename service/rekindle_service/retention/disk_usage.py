"""What takes the space: the files of each job by what they are, measured by a thread and remembered."""

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

import structlog

from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.config.home import Home
from rekindle_service.periodic_thread import PeriodicThread
from rekindle_service.store import Store
from rekindle_service.store.retention_store import JobEntry

_log = structlog.get_logger(__name__)

BLOCK_BYTES = 512  # in which ``st_blocks`` counts
_INTERVAL = 30.0  # seconds between two rounds
_REFRESH = 120.0  # seconds after which a job that has not ended is measured again
_MAX_ENTRIES = 5_000_000  # of one job; what comes after is not counted


@dataclass(slots=True)
class JobUsage:
    """Bytes on the disk: a file with holes counts as what is left of it, one with several names as one."""

    snapshots: int = 0
    logs: int = 0  # output, metrics and stacks of all attempts
    code: int = 0  # the copy of the code, and what the script has written next to it
    other: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, each.name) for each in fields(self))


def measure_run(run_dir: RunDir, stopped: Callable[[], bool] = lambda: False) -> JobUsage:
    """The space that the files of a run take. No link is followed, and no other file system entered."""
    parts = {run_dir.snapshots.name: "snapshots", run_dir.attempts.name: "logs", run_dir.code.name: "code"}
    usage = JobUsage()
    for part, size in _sizes(run_dir.root, stopped):
        name = parts.get(part, "other")
        setattr(usage, name, getattr(usage, name) + size)
    return usage


def measure_directory(root: Path, stopped: Callable[[], bool] = lambda: False) -> int:
    return sum(size for _, size in _sizes(root, stopped))


def _sizes(root: Path, stopped: Callable[[], bool]) -> Iterator[tuple[str, int]]:
    """For each entry below ``root`` the first part of its path and the bytes that it takes."""
    try:
        device = root.lstat().st_dev
    except OSError:
        return
    seen: set[int] = set()  # inodes with several names
    waiting, entries = [("", str(root))], 0
    while waiting:
        part, directory = waiting.pop()
        with suppress(OSError), os.scandir(directory) as found:  # it may be deleted meanwhile, or be too deep
            for entry in found:
                entries += 1
                if stopped() or entries > _MAX_ENTRIES:
                    return
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if status.st_dev != device or (status.st_nlink > 1 and _known(seen, status)):
                        continue
                    first = part or entry.name
                    yield first, status.st_blocks * BLOCK_BYTES
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append((first, entry.path))


def _known(seen: set[int], status: os.stat_result) -> bool:
    """Whether the file was counted by another name; directories have one."""
    if stat.S_ISDIR(status.st_mode):
        return False
    known = status.st_ino in seen
    seen.add(status.st_ino)
    return known


@dataclass(frozen=True, slots=True)
class _Measured:
    usage: JobUsage
    version: tuple[object, ...]  # of the job: what has ended and was not pruned stays as it is
    at: float  # time.monotonic()


class DiskUsage:
    """Thread-safe. ``start`` starts a thread that measures all jobs, those that have ended once."""

    def __init__(self, home: Home, store: Store) -> None:
        self._home, self._store = home, store
        self._measured: dict[str, _Measured] = {}
        self._bundles = 0
        self._thread = PeriodicThread("disk-usage", self.measure, _INTERVAL, "The use of the disk cannot be measured")

    @property
    def bundles(self) -> int:
        """Bytes of all uploaded code."""
        return self._bundles

    def known(self, job_id: str) -> JobUsage | None:
        """None where the job was not measured yet."""
        measured = self._measured.get(job_id)
        return None if measured is None else measured.usage

    def of(self, job: JobEntry) -> JobUsage:
        """Measured now, unless it is known and recent."""
        measured = self._measured.get(job.id)
        if measured is None or self._is_old(job, measured):
            usage = measure_run(self._home.run_dir(job.id), self._thread.stopping)
            measured = self._measured[job.id] = _Measured(usage, _version(job), time.monotonic())
        return measured.usage

    def forget(self, job_id: str) -> None:
        """Measure the job again: something of it was removed."""
        self._measured.pop(job_id, None)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._thread.close()

    def _is_old(self, job: JobEntry, measured: _Measured) -> bool:
        changed = measured.version != _version(job)
        return changed or (not job.finished and time.monotonic() - measured.at > _REFRESH)

    def measure(self) -> None:
        """One round over all jobs."""
        jobs = self._store.retention.jobs()
        for job in jobs:
            if self._thread.stopping():
                return
            self.of(job)
        for gone in self._measured.keys() - {job.id for job in jobs}:
            self._measured.pop(gone, None)
        self._bundles = measure_directory(self._home.bundles, self._thread.stopping)


def _version(job: JobEntry) -> tuple[object, ...]:
    return job.state, job.attempt, job.ended_at
