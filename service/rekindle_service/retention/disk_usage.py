"""What takes the disk: the files of each job by what they are, measured by a thread and remembered, with their sums."""

import copy
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, KeysView
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

from rekindle.contract.field_texts import Described
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.states import HOLDING_SLOTS
from rekindle_service.config.home import Home
from rekindle_service.periodic_thread import PeriodicThread
from rekindle_service.store import Store
from rekindle_service.store.retention_store import JobEntry

BLOCK_BYTES = 512  # in which ``st_blocks`` counts
_INTERVAL = 30.0  # seconds between two rounds
_REFRESH = 120.0  # seconds after which a job that runs is measured again
_MAX_ENTRIES = 5_000_000  # of one job; what comes after is not counted


@dataclass(slots=True)
class KindBytes(Described):
    """Bytes on the disk by kind."""

    snapshots: int = 0
    """Bytes of snapshots."""
    logs: int = 0
    """Bytes of output and metrics."""
    code: int = 0
    """Bytes of the code, with what scripts wrote in it."""
    other: int = 0
    """Bytes of everything else."""

    @property
    def total(self) -> int:
        return self.snapshots + self.logs + self.code + self.other

    def add(self, other: "KindBytes", sign: int = 1) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + sign * getattr(other, each.name))


@dataclass(slots=True)
class OwnerBytes:
    """The jobs of one owner."""

    jobs: int = 0
    measured: int = 0
    usage: KindBytes = field(default_factory=KindBytes)


Place = tuple[int, int, str, str | None]
"""Bytes (negative), number, id and owner of a job: the largest job comes first."""


class UsageLedger:
    """The space of every job and its sums by owner, kept while jobs change. Not thread-safe."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._usages: dict[str, KindBytes] = {}
        self._order: list[Place] | None = None  # None: a job has changed since it was made
        self.owners: dict[str | None, OwnerBytes] = {}

    def __len__(self) -> int:
        return len(self._places)

    def keys(self) -> KeysView[str]:
        return self._places.keys()

    def usage(self, job_id: str) -> KindBytes | None:
        """What was measured of the job; None where it was not measured yet, or is unknown."""
        return self._usages.get(job_id)

    def add(self, job_id: str, number: int, owner: str | None) -> None:
        """Know a job; nothing changes where it is known."""
        if job_id not in self._places:
            self._places[job_id] = (0, number, job_id, owner)
            self.owners.setdefault(owner, OwnerBytes()).jobs += 1
            self._order = None

    def set(self, job_id: str, usage: KindBytes) -> None:
        """Take what was measured of a known job."""
        if self._usages.get(job_id) == usage:
            return
        _, number, _, owner = self._places[job_id]
        self._uncount(job_id, owner)
        self._usages[job_id] = usage
        self.owners[owner].measured += 1
        self.owners[owner].usage.add(usage)
        self._places[job_id] = (-usage.total, number, job_id, owner)
        self._order = None

    def remove(self, job_id: str) -> None:
        if job_id not in self._places:
            return
        *_, owner = self._places.pop(job_id)
        self._uncount(job_id, owner)
        self.owners[owner].jobs -= 1
        if not self.owners[owner].jobs:
            del self.owners[owner]
        self._order = None

    def largest(self) -> list[Place]:
        """All jobs, the largest first; sorted again after a change. The list must not be changed."""
        if self._order is None:
            self._order = sorted(self._places.values())
        return self._order

    def _uncount(self, job_id: str, owner: str | None) -> None:
        usage = self._usages.pop(job_id, None)
        if usage is not None:
            self.owners[owner].measured -= 1
            self.owners[owner].usage.add(usage, -1)


def measure_run(run_dir: RunDir, stopped: Callable[[], bool] = lambda: False) -> KindBytes:
    """The space that the files of a run take: a file with holes counts as what is left of it.

    No link is followed, and no other file system entered; a file with several names counts once.
    """
    parts = {run_dir.snapshots.name: "snapshots", run_dir.attempts.name: "logs", run_dir.code.name: "code"}
    usage = KindBytes()
    for part, size in _sizes(run_dir.root, stopped):
        name = parts.get(part, "other")
        setattr(usage, name, getattr(usage, name) + size)
    return usage


def measure_directory(root: Path, stopped: Callable[[], bool] = lambda: False) -> int:
    """The space that all files below ``root`` take, in bytes."""
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


class DiskMeter:
    """Thread-safe. ``start`` starts a thread that measures all jobs, those that do not run once.

    Jobs are read once; after that only those that have changed since, however many there are.
    """

    def __init__(self, home: Home, store: Store) -> None:
        self._home, self._store = home, store
        self._ledger = UsageLedger()
        self._measured: dict[str, tuple[int, float]] = {}  # versions, and when (time.monotonic())
        self._unmeasured: set[str] = set()  # changed, or never measured
        self._running: set[str] = set()  # measured again and again
        self._version = 0  # of the latest change of a job that is known
        self._lock = threading.RLock()
        self.bundles = 0  # bytes of all uploaded code
        self._thread = PeriodicThread("disk-usage", self.measure, _INTERVAL, "The use of the disk cannot be measured")

    def known(self, job_id: str) -> KindBytes | None:
        """What was measured of the job; None where it was not measured yet."""
        return self._ledger.usage(job_id)

    def owners(self) -> dict[str | None, OwnerBytes]:
        """The sums of each owner, as of now."""
        with self._lock:
            self._refresh()
            return copy.deepcopy(self._ledger.owners)

    def largest(self, owners: Callable[[str | None], bool] | None = None) -> list[Place]:
        """All jobs, or those of some owners, the largest first."""
        with self._lock:
            self._refresh()
            order = self._ledger.largest()
            return order.copy() if owners is None else [place for place in order if owners(place[3])]

    def of(self, job: JobEntry) -> KindBytes:
        """The space of the job, measured now unless it is known and recent."""
        version, measured_at = self._measured.get(job.id, (None, 0.0))
        usage = self._ledger.usage(job.id)
        is_old = job.state in HOLDING_SLOTS and time.monotonic() - measured_at > _REFRESH
        if usage is None or version != _version(job) or is_old:
            usage = measure_run(self._home.run_dir(job.id), self._thread.stopping)
            with self._lock:
                self._measured[job.id] = _version(job), time.monotonic()
                self._ledger.add(job.id, job.number, job.owner)
                self._ledger.set(job.id, usage)
        return usage

    def forget(self, job_id: str) -> None:
        """Measure the job again: something of it was removed."""
        with self._lock:
            self._measured.pop(job_id, None)
            self._unmeasured.add(job_id)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._thread.close()

    def measure(self) -> None:
        """One round over the jobs that have changed and those that run."""
        with self._lock:
            self._refresh()
            due = [*self._unmeasured, *self._running]
            self._unmeasured.clear()  # what changes from now on is measured in the next round
        try:
            for job in self._store.retention.entries(due):
                if self._thread.stopping():
                    return
                self.of(job)
        except Exception:
            with self._lock:
                self._unmeasured.update(job_id for job_id in due if job_id not in self._measured)
            raise
        self.bundles = measure_directory(self._home.bundles, self._thread.stopping)

    def _refresh(self) -> None:
        """Follow the rows. Those that were removed without a trace show in the count: then all are read again."""
        complete = False
        while not complete:
            changes = self._store.retention.changes(self._version)
            for job in changes.jobs:
                self._follow(job)
            for job_id in changes.deleted:
                self._forget_job(job_id)
            self._version, complete = changes.latest, changes.complete
        if changes.total != len(self._ledger):
            jobs = self._store.retention.jobs()
            for job in jobs:
                self._follow(job)
            for job_id in self._ledger.keys() - {job.id for job in jobs}:
                self._forget_job(job_id)

    def _follow(self, job: JobEntry) -> None:
        self._ledger.add(job.id, job.number, job.owner)
        version, _ = self._measured.get(job.id, (None, 0.0))
        if version != _version(job):  # what does not run and was not pruned stays as it is
            self._unmeasured.add(job.id)
        if job.state in HOLDING_SLOTS:
            self._running.add(job.id)
        else:
            self._running.discard(job.id)

    def _forget_job(self, job_id: str) -> None:
        self._ledger.remove(job_id)
        self._measured.pop(job_id, None)
        self._unmeasured.discard(job_id)
        self._running.discard(job_id)


def _version(job: JobEntry) -> int:
    return hash((job.state, job.attempt, job.ended_at))
