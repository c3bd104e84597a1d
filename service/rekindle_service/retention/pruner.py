"""Pruning: what the rules say is removed, by a thread every hour and on request."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from rekindle.contract.locks import lock_holder
from rekindle.contract.run_dir.paths import STREAMS, RunDir
from rekindle.contract.run_dir.snapshot_dir import NO_SNAPSHOTS, Manifest, SnapshotDir, read_pins, step_name
from rekindle.contract.safe_open import directory_beneath, open_beneath, stat_beneath
from rekindle.contract.states import TERMINAL
from rekindle_service.config.home import DELETED, Home
from rekindle_service.config.settings import RetentionRules
from rekindle_service.jobs.actions import SNAPSHOTS_LOCK
from rekindle_service.jobs.packaging.code_manifest import describe_file
from rekindle_service.jobs.packaging.code_sources import Bundles, bundle_id_of
from rekindle_service.periodic_thread import PeriodicThread
from rekindle_service.retention.deletions import Deletions
from rekindle_service.retention.disk_usage import BLOCK_BYTES, DiskMeter, measure_directory
from rekindle_service.retention.rules import (
    ItemKind,
    PruneFailure,
    PruneItem,
    SpareSnapshot,
    StoredJob,
    plan_jobs,
)
from rekindle_service.run_readers.rank_rows import attempt_numbers
from rekindle_service.run_readers.stored_snapshots import SnapshotInfo, read_snapshots
from rekindle_service.store import Store
from rekindle_service.store.retention_store import JobEntry

_log = structlog.get_logger(__name__)

_DAY = 24 * 3600
_INTERVAL = 3600.0  # seconds
_URGENT_INTERVAL = 60.0  # seconds, while the disk is full
_MAX_CLOCK_STEP = 7 * _DAY  # seconds; where the clock is later than that by surprise, it may be wrong
_CLOCK_TRUST = float(_DAY)  # seconds that a server has to run before it believes such a clock


class Pruner:
    """Thread-safe. Nothing of a job that has not ended is ever removed.

    ``deletions`` are the reconciler's, which starts and closes them; the measuring of the disk is the pruner's own.
    """

    def __init__(self, home: Home, store: Store, deletions: Deletions, rules: RetentionRules) -> None:
        self.rules = rules
        self.deletions = deletions
        self.usage = DiskMeter(home, store)
        self._home, self._store = home, store
        self._bundles = Bundles(home)
        self._started_at = self._pruned_at = time.monotonic()
        self._turn = threading.Lock()
        self._thread = PeriodicThread("pruner", self.prune_if_due, _URGENT_INTERVAL, "Pruning failed")

    # --- what would be removed

    def plan(self, rules: RetentionRules, owner: str | None = None) -> list[PruneItem]:
        """What ``rules`` remove now. ``owner``: only of their jobs, and neither bundles nor rows."""
        now = time.time()
        jobs = [self._stored(entry) for entry in self._store.retention.jobs() if owner in (None, entry.owner)]
        items = plan_jobs(jobs, rules, now, self._spared, self._log_bytes)
        return items if owner is not None else [*items, *self._plan_bundles(rules, now), *self._plan_rows(rules, now)]

    def _stored(self, entry: JobEntry) -> StoredJob:
        pinned = entry.finished and bool(read_pins(self._home.run_dir(entry.id).pins))
        return StoredJob(entry, self.usage.of(entry).total, pinned)

    def _spared(self, entry: JobEntry) -> list[SpareSnapshot]:
        """The snapshots that the job does not need to continue; none while a process may use them."""
        run_dir = self._home.run_dir(entry.id)
        if lock_holder(run_dir.keeper_lock) is not None:
            return []
        found = read_snapshots(run_dir.root, run_dir.snapshots)
        needed = _needed(found, read_pins(run_dir.pins), entry.rewind)
        if not any(each.verified for each in found):
            return []
        spared = [
            SpareSnapshot(step_name(each.step), each.bytes) for each in reversed(found) if each.step not in needed
        ]
        return [*_remains(run_dir), *spared]

    def _log_bytes(self, entry: JobEntry) -> int:
        run_dir = self._home.run_dir(entry.id)
        found = (stat_beneath(run_dir.root, path) for path in _logs(run_dir))
        return sum(status.st_blocks * BLOCK_BYTES for status in found if status is not None)

    def _plan_bundles(self, rules: RetentionRules, now: float) -> Iterator[PruneItem]:
        if rules.keep_bundles_days is None:
            return
        reason = f"no job refers to it and it was not used for {rules.keep_bundles_days:g} days (keep_bundles_days)"
        for path in self._bundles.unused(self._store.bundles_in_use(), now - rules.keep_bundles_days * _DAY):
            yield _item(ItemKind.BUNDLE, reason, name=bundle_id_of(path), size=measure_directory(path))

    def _plan_rows(self, rules: RetentionRules, now: float) -> Iterator[PruneItem]:
        rows = self._store.retention
        if rules.keep_events_days is not None:
            count = rows.old_events(now - rules.keep_events_days * _DAY, self._needed_tombstones())
            reason = f"older than {rules.keep_events_days:g} days (keep_events_days)"
            yield from [_item(ItemKind.EVENTS, reason, count=count)] if count else []
        if rules.keep_audit_days is not None:
            count = rows.old_audit_entries(now - rules.keep_audit_days * _DAY)
            reason = f"older than {rules.keep_audit_days:g} days (keep_audit_days)"
            yield from [_item(ItemKind.AUDIT, reason, count=count)] if count else []

    def _needed_tombstones(self) -> set[str]:
        """Ids of deleted jobs that have a directory still, or that a queued job waits for."""
        directories = {path.name.removeprefix(DELETED) for path in self._home.runs.iterdir()}
        return directories | set(self._store.queue.awaited())

    # --- removing

    def prune(self, rules: RetentionRules, owner: str | None = None) -> tuple[list[PruneItem], list[PruneFailure]]:
        """Remove what ``plan`` returns; what could not be removed comes with the reason."""
        removed: list[PruneItem] = []
        failures: list[PruneFailure] = []
        with self._turn:
            for item in self.plan(rules, owner):
                try:
                    reason = self._remove(item, rules)
                except OSError as error:
                    reason = f"{error.strerror}: {error.filename}"
                if reason is None:
                    removed.append(item)
                else:
                    failures.append(PruneFailure(item, reason))
        self._record(removed)
        return removed, failures

    def _remove(self, item: PruneItem, rules: RetentionRules) -> str | None:
        """Remove an item; returns None, or why it was not removed."""
        match item.kind:
            case ItemKind.JOB:
                return None if self._store.delete_job(item.job_id or "") else "it was resumed meanwhile"
            case ItemKind.SNAPSHOT:
                return self._remove_snapshot(self._home.run_dir(item.job_id or ""), item.name)
            case ItemKind.LOGS:
                return self._remove_logs(self._home.run_dir(item.job_id or ""))
            case ItemKind.BUNDLE:
                self.deletions.remove_beneath(self._home.root, self._bundles.path(item.name))
            case ItemKind.EVENTS:
                self._store.retention.remove_events(
                    time.time() - (rules.keep_events_days or 0) * _DAY, self._needed_tombstones()
                )
            case ItemKind.AUDIT:
                self._store.retention.remove_audit_entries(time.time() - (rules.keep_audit_days or 0) * _DAY)
        return None

    def _remove_snapshot(self, run_dir: RunDir, name: str) -> str | None:
        """A job may be resumed any moment, but not within the lock. What it keeps is read back to its last byte."""
        with SNAPSHOTS_LOCK:
            job = self._store.job(run_dir.job_id)
            if job is None or job.state not in TERMINAL or lock_holder(run_dir.keeper_lock) is not None:
                return "its job was resumed or deleted meanwhile"
            found = read_snapshots(run_dir.root, run_dir.snapshots)
            needed = _needed(found, read_pins(run_dir.pins), job.rewind, lambda step: _is_intact(run_dir, step))
            if not needed or name in {step_name(step) for step in needed}:
                return "the job needs it to continue: no later snapshot is intact, or it was pinned meanwhile"
            self.deletions.remove_beneath(run_dir.root, run_dir.snapshots / name)
        return None

    def _remove_logs(self, run_dir: RunDir) -> str | None:
        with SNAPSHOTS_LOCK:
            job = self._store.job(run_dir.job_id)
            if job is None or job.state not in TERMINAL or lock_holder(run_dir.keeper_lock) is not None:
                return "its job was resumed or deleted meanwhile"
            for path in _logs(run_dir):
                with (
                    suppress(FileNotFoundError, NotADirectoryError),
                    directory_beneath(run_dir.root, path.parent) as fd,
                ):
                    os.unlink(path.name, dir_fd=fd)  # relative to a descriptor
        return None

    def _record(self, removed: Sequence[PruneItem]) -> None:
        """Write what was removed into the events of each job, and into the server's log."""
        by_job: dict[str, list[PruneItem]] = {}
        for item in removed:
            if item.job_id is not None:
                by_job.setdefault(item.job_id, []).append(item)
            _log.info("Pruned", kind=item.kind, job=item.job_id, name=item.name, bytes=item.bytes, reason=item.reason)
        for job_id, items in by_job.items():
            self.usage.forget(job_id)
            what = ", ".join("the logs" if item.kind is ItemKind.LOGS else f"snapshot {item.name}" for item in items)
            if items[0].kind is not ItemKind.JOB:
                self._store.retention.record(job_id, "pruned", f"removed {what}: {items[0].reason}")

    # --- the thread

    def start(self) -> None:
        self.usage.start()
        self._pruned_at = float("-inf")
        self._thread.start()

    def close(self) -> None:
        self._thread.close()
        self.usage.close()

    def prune_if_due(self) -> None:
        """Every hour, and every minute while the disk is full; by the clock only where it can be trusted."""
        if time.monotonic() - self._pruned_at < _INTERVAL and self._home.lack_of_space() is None:
            return
        self._pruned_at = time.monotonic()
        space_alone = RetentionRules(owner_bytes=self.rules.owner_bytes, jobs_bytes=self.rules.jobs_bytes)
        self.prune(self.rules if self._trusts_clock(time.time()) else space_alone)

    def _trusts_clock(self, now: float) -> bool:
        """False where the clock may be wrong: with a false year, every job would be older than any rule allows."""
        last = self._store.retention.last_clock()
        if last is not None and now - last > _MAX_CLOCK_STEP and time.monotonic() - self._started_at < _CLOCK_TRUST:
            _log.warning(
                "Nothing is pruned by age for a day: the clock is much later than when a server ran here last",
                days=round((now - last) / _DAY),
            )
            return False
        self._store.retention.set_clock(now)
        return True


def _item(kind: ItemKind, reason: str, *, name: str = "", size: int = 0, count: int = 1) -> PruneItem:
    """Describe what belongs to no job."""
    return PruneItem(kind, None, None, name, None, size, count, reason)


def _needed(
    found: Sequence[SnapshotInfo],
    pinned: frozenset[int],
    rewind: dict[str, Any],
    is_intact: Callable[[int], bool] = lambda _: True,
) -> set[int]:
    """The steps that stay: the latest intact snapshot, the best, the pinned, and the one chosen for a resume.

    Empty where none is intact. ``found`` is sorted, latest first.
    """
    latest = next((each.step for each in found if each.verified and is_intact(each.step)), None)
    if latest is None:
        return set()
    later = {each.step for each in found if each.step > latest}  # damaged: evidence, and perhaps repaired by hand
    best = {each.step for each in found if each.best}
    return {latest, *later, *best, *pinned, *({rewind["step"]} if "step" in rewind else set())}


def _remains(run_dir: RunDir) -> list[SpareSnapshot]:
    """Directories of snapshots that were being written or deleted when their process died, and quarantined ones."""
    names: list[str] = []
    with suppress(OSError), directory_beneath(run_dir.root, run_dir.snapshots) as fd:
        names = sorted(name for name in os.listdir(fd) if name.startswith(NO_SNAPSHOTS))  # noqa: PTH208  # by descriptor
    return [SpareSnapshot(name, measure_directory(run_dir.snapshots / name)) for name in names]


def _is_intact(run_dir: RunDir, step: int) -> bool:
    """Whether every byte of the snapshot is as it was written."""
    snapshots = SnapshotDir(run_dir.snapshots)
    manifest = snapshots.manifest(step)
    return manifest is not None and _has_digests(run_dir.root, snapshots.path(step), manifest)


def _has_digests(root: Path, directory: Path, manifest: Manifest) -> bool:
    for name, record in manifest.files.items():
        if (file := open_beneath(root, directory / name)) is None:
            return False
        with file:
            if describe_file(file).sha256 != record.sha256:
                return False
    return True


def _logs(run_dir: RunDir) -> Iterator[Path]:
    """Output, metrics, digests and usage of all attempts; how each rank ended is kept."""
    for number in attempt_numbers(run_dir):
        attempt_dir = run_dir.attempt(number)
        yield from (attempt_dir.usage, attempt_dir.scalars, attempt_dir.printed)
        for pattern in ("agent*.log", "log_times*.jsonl"):  # one of each node
            yield from attempt_dir.root.glob(pattern)
        for rank in attempt_dir.rank_numbers():
            rank_dir = attempt_dir.rank(rank)
            yield from (rank_dir.log(stream) for stream in STREAMS)
            yield from (rank_dir.metrics, rank_dir.digests, rank_dir.stacks, rank_dir.files)
