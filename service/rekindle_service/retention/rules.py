"""What is to be removed by which rule: a pure function of what there is, the rules and the time."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rekindle.contract.field_texts import Described
from rekindle.contract.states import JobState
from rekindle_service.config.settings import RetentionRules
from rekindle_service.store.retention_store import JobEntry

_DAY = 24 * 3600


class ItemKind(StrEnum):
    """What can be removed."""

    JOB = "job"  # a finished job with all its files
    SNAPSHOT = "snapshot"  # one that a finished job does not need to continue
    LOGS = "logs"  # output and metrics of all ranks of a finished job
    BUNDLE = "bundle"  # uploaded code
    EVENTS = "events"  # rows: what happened to jobs
    AUDIT = "audit"  # rows: who did what


@dataclass(frozen=True, slots=True)
class SpareSnapshot:
    """A snapshot that can go without its job losing the way to continue. ``name`` is that of its directory."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as the rules see it."""

    entry: JobEntry
    bytes: int
    pinned: bool  # a person has pinned one of its snapshots

    @property
    def ended_at(self) -> float | None:
        """None: it has not ended, and nothing of it is removed."""
        return self.entry.ended_at if self.entry.finished else None


@dataclass(frozen=True, slots=True)
class PruneItem(Described):
    """One thing that is removed."""

    kind: ItemKind
    """What it is: `job`, `snapshot`, `logs`, `bundle`, `events` or `audit`."""
    job_id: str | None
    """Id of the job; null for what belongs to no job."""
    number: int | None
    """Number of the job; null for what belongs to no job."""
    name: str
    """Name of the job, of the snapshot's directory, or of the bundle."""
    owner: str | None
    """Person it belongs to; null where it belongs to nobody."""
    bytes: int
    """Bytes that become free."""
    count: int
    """Number of database rows that are removed, or of files' directories: 1."""
    reason: str
    """Which rule removes it, in a sentence."""


@dataclass(frozen=True, slots=True)
class PruneFailure(Described):
    """One thing that should have been removed and was not."""

    item: PruneItem
    """What was not removed."""
    reason: str
    """Why, in a sentence."""


SnapshotsOf = Callable[[JobEntry], Sequence[SpareSnapshot]]
"""The snapshots that a job can spare, oldest first. It is asked only where a rule needs it, as the next one."""

LogBytesOf = Callable[[JobEntry], int]
"""The bytes of output and metrics of a job."""


def plan_jobs(
    jobs: Sequence[StoredJob], rules: RetentionRules, now: float, snapshots: SnapshotsOf, log_bytes: LogBytesOf
) -> list[PruneItem]:
    """List what is removed of the jobs: by age first, then, where a limit of space is exceeded still, the oldest first.

    A limit of space takes what a finished job can spare, and whole jobs only of those that have succeeded: one that has
    failed or was cancelled may be resumed. A job with a pinned snapshot is kept.
    """
    plan = _Plan()
    for job in _finished(jobs):
        for item in _by_age(job, rules, now, snapshots, log_bytes):
            plan.add(item)
    for limit, group, reason in _groups(jobs, rules):
        _fit(plan, limit, group, reason, snapshots)
    return [item for items in plan.items.values() for item in items]


class _Plan:
    """The items by the id of their job; one that goes as a whole has no other."""

    def __init__(self) -> None:
        self.items: dict[str, list[PruneItem]] = defaultdict(list)

    def add(self, item: PruneItem) -> None:
        items = self.items[item.job_id or ""]
        if item.kind is ItemKind.JOB:
            items.clear()
        items.append(item)

    def freed(self, job: StoredJob) -> int:
        """Bytes that the plan removes of the job."""
        return sum(item.bytes for item in self.items.get(job.entry.id, ()))

    def removes(self, job: StoredJob, snapshot: SpareSnapshot | None = None) -> bool:
        """Whether the plan removes the whole job, or ``snapshot``."""
        items = self.items.get(job.entry.id, ())
        if any(item.kind is ItemKind.JOB for item in items):
            return True
        return snapshot is not None and any(
            item.kind is ItemKind.SNAPSHOT and item.name == snapshot.name for item in items
        )


def _finished(jobs: Iterable[StoredJob]) -> list[StoredJob]:
    """The jobs that have ended, oldest end first."""
    return sorted((job for job in jobs if job.ended_at is not None), key=lambda job: job.ended_at or 0.0)


def _by_age(
    job: StoredJob, rules: RetentionRules, now: float, snapshots: SnapshotsOf, log_bytes: LogBytesOf
) -> Iterator[PruneItem]:
    age = now - (job.ended_at or now)
    if _older(age, rules.keep_jobs_days) and not job.pinned:
        yield _job_item(job, f"it ended more than {rules.keep_jobs_days:g} days ago (keep_jobs_days)")
        return
    if _older(age, rules.keep_snapshots_days):
        days = f"{rules.keep_snapshots_days:g} days"
        reason = f"its job ended more than {days} ago and keeps its latest (keep_snapshots_days)"
        yield from (_snapshot_item(job, snapshot, reason) for snapshot in snapshots(job.entry))
    if _older(age, rules.keep_logs_days) and (size := log_bytes(job.entry)):
        reason = f"its job ended more than {rules.keep_logs_days:g} days ago (keep_logs_days)"
        yield _item(ItemKind.LOGS, job.entry, job.entry.name, size, reason)


def _groups(jobs: Sequence[StoredJob], rules: RetentionRules) -> Iterator[tuple[int, list[StoredJob], str]]:
    """Each limit of space with the jobs that it is about, and its reason."""
    if rules.owner_bytes is not None:
        by_owner: dict[str | None, list[StoredJob]] = defaultdict(list)
        for job in jobs:
            by_owner[job.entry.owner].append(job)
        for owner, group in by_owner.items():
            whose = f"of {owner}" if owner is not None else "without an owner"
            yield rules.owner_bytes, group, f"the jobs {whose} take more than {rules.owner_bytes} bytes (owner_bytes)"
    if rules.jobs_bytes is not None:
        yield rules.jobs_bytes, list(jobs), f"all jobs take more than {rules.jobs_bytes} bytes (jobs_bytes)"


def _fit(plan: _Plan, limit: int, group: list[StoredJob], reason: str, snapshots: SnapshotsOf) -> None:
    """Choose more of ``group`` until what stays fits into ``limit``, or nothing else may go."""
    left = sum(job.bytes - plan.freed(job) for job in group)
    for job in _finished(group):
        for snapshot in snapshots(job.entry) if left > limit else ():
            if left > limit and not plan.removes(job, snapshot):
                plan.add(_snapshot_item(job, snapshot, reason))
                left -= snapshot.bytes
    for job in _finished(group):
        if left > limit and job.entry.state is JobState.SUCCEEDED and not job.pinned and not plan.removes(job):
            left -= job.bytes - plan.freed(job)
            plan.add(_job_item(job, reason))


def _item(kind: ItemKind, job: JobEntry, name: str, size: int, reason: str) -> PruneItem:
    return PruneItem(kind, job.id, job.number, name, job.owner, size, 1, reason)


def _job_item(job: StoredJob, reason: str) -> PruneItem:
    return _item(ItemKind.JOB, job.entry, job.entry.name, job.bytes, reason)


def _snapshot_item(job: StoredJob, snapshot: SpareSnapshot, reason: str) -> PruneItem:
    return _item(ItemKind.SNAPSHOT, job.entry, snapshot.name, snapshot.bytes, reason)


def _older(age: float, days: float | None) -> bool:
    return days is not None and age > days * _DAY
