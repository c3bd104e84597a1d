"""Changes of jobs: the parts that each consists of, within the caller's transaction, and the feed of all of them."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import update
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from rekindle.contract.states import HOLDING_SLOTS, TERMINAL, TRANSITIONS, JobState
from rekindle_service.store.sqlite import StorePart
from rekindle_service.store.tables import Counter, Event, Job, Row
from rekindle_service.store.totals import archive_counts

JOBS_AT_ONCE = 200
"""Jobs that one transaction changes or deletes: all others wait for it."""

_DELIVERED = "delivered:"  # followed by the notification channel
_GUARDED = frozenset({"id", "number", "version", "state"})


def set_columns(job: Job, changes: Mapping[str, Any]) -> bool:
    """Set columns; True if one of them has another value now."""
    changed = False
    for column, value in changes.items():
        if column in _GUARDED or column not in Job.model_fields:
            raise ValueError(f"a job has no column {column!r} that can be set")
        if getattr(job, column) != value:
            setattr(job, column, value)
            changed = True
    return changed


def is_stopping(job: Job) -> bool:
    """Whether the job is on its way back to the queue because its slots are for another job, or cannot be used."""
    return job.displaced is not None and job.wanted_devices is None


def by_key(session: Session, table: type[Row], key: str | None) -> Row | None:
    """The row that a request with this idempotency key has made."""
    return None if key is None else session.exec(select(table).where(table.idempotency_key == key)).first()


def insert(session: Session, jobs: Sequence[Job], *, numbered: bool = False) -> None:
    """Add new jobs with the next numbers, or their own where these were reserved (``numbered``), in few statements."""
    if jobs and not numbered:
        for number, job in enumerate(jobs, start=next_values(session, "number", len(jobs))):
            job.number = number
    at = time.time()
    for version, job in versioned(session, jobs):
        job.version = record(session, job, "submitted", to_state=job.state, at=at, version=version)
    session.add_all(jobs)


def check_way(expected: Collection[JobState], to: JobState) -> None:
    """Raises ValueError for a way that ``TRANSITIONS`` does not have."""
    for state in expected:
        if to not in TRANSITIONS[state]:
            raise ValueError(f"no way leads from {state} to {to}")


def move(session: Session, job: Job, to: JobState, reason: str, at: float, *, version: int | None = None) -> None:
    """The only place that writes ``state``. ``version``: see ``record``."""
    if to not in TRANSITIONS[job.state]:
        raise ValueError(f"job {job.id}: no way leads from {job.state} to {to}")
    states = {"from_state": job.state, "to_state": to}
    job.version = record(session, job, "state", **states, reason=reason, at=at, version=version)
    if job.state in TERMINAL:
        job.archived_at = job.seen_at = None
    job.state = to
    if to is JobState.STARTING:
        job.devices_since, job.can_resize = at, False
    if to not in HOLDING_SLOTS:
        job.preemptions += to is JobState.QUEUED and is_stopping(job)
        job.displaced = job.wanted_devices = None
    if to is not JobState.QUEUED:
        job.queue_position = job.waiting_for = job.estimated_start_at = None


def record(
    session: Session,
    job: Job,
    kind: str,
    *,
    from_state: str | None = None,
    to_state: str | None = None,
    reason: str = "",
    at: float | None = None,
    owner: str | None = None,
    version: int | None = None,
) -> int:
    """Add an event of ``job``; returns its id, the version of this change, which is the next one unless it is given."""
    version = next_value(session, "version") if version is None else version
    at = time.time() if at is None else at
    states = {"from_state": from_state, "to_state": to_state}
    session.add(Event(id=version, job_id=job.id, at=at, kind=kind, reason=reason, owner=owner, **states))
    return version


def forget(session: Session, job: Job, *, version: int | None = None) -> None:
    """Delete the row of a job that has ended; an event stays as its tombstone. ``version``: see ``record``."""
    record(session, job, "deleted", from_state=job.state, owner=job.owner, version=version)
    archive_counts(session, job)
    session.delete(job)


def versioned(session: Session, jobs: Sequence[Job]) -> Iterable[tuple[int, Job]]:
    """Pair each job with a version for ``record``, which would write every job by itself if it had to ask for one."""
    return enumerate(jobs, start=next_values(session, "version", len(jobs)) if jobs else 0)


def next_value(session: Session, name: str) -> int:
    return next_values(session, name, 1)


def next_values(session: Session, name: str, count: int) -> int:
    """The first of the next ``count`` values, which follow each other."""
    query = update(Counter).where(col(Counter.name) == name).values(value=col(Counter.value) + count)
    return int(session.execute(query.returning(col(Counter.value))).scalar_one()) - count + 1


def last_value(session: Session, name: str) -> int:
    return session.exec(select(Counter.value).where(Counter.name == name)).one()


class Changes(NamedTuple):
    """What happened after a version; continue from ``latest``."""

    jobs: list[Job]  # ascending by version
    deleted: list[Event]  # tombstones
    latest: int


class ChangeFeed(StorePart):
    """Part of ``Store``, which explains what a version is. Thread-safe; any method may raise StorageError."""

    def version(self) -> int:
        """The version of the last change."""
        with self._database.reading() as session:
            return last_value(session, "version")

    def tombstones(self, since: int, limit: int = 500) -> list[Event]:
        """The events of the first ``limit`` deletions after version ``since``."""
        return self._database.rows(_tombstones(since, limit))

    def changes(self, since: int, limit: int = 500) -> Changes:
        """The first ``limit`` jobs changed and ids deleted after version ``since``, in the order of the change."""
        query = select(Job).where(col(Job.version) > since).order_by(col(Job.version)).limit(limit)
        with self._database.reading() as session:
            jobs = list(session.exec(query))
            gone = list(session.exec(_tombstones(since, limit)))
            latest = max(since, last_value(session, "version"))
        if len(jobs) == limit:
            latest = jobs[-1].version
        if len(gone) == limit:
            latest = min(latest, gone[-1].id)
        return Changes(
            [job for job in jobs if job.version <= latest],
            [event for event in gone if event.id <= latest],
            latest,
        )

    def events(self, since: int, limit: int) -> list[Event]:
        """The first ``limit`` events of any job after the event or version ``since``, oldest first."""
        query = select(Event).where(col(Event.id) > since).order_by(col(Event.id)).limit(limit)
        return self._database.rows(query)

    # --- how far the events have been delivered to each notification channel

    def delivered(self, channel: str) -> int:
        """Id of the last event that was delivered to ``channel``; a new one begins with the events from now on."""
        with self._database.writing() as session:
            row = session.get(Counter, _DELIVERED + channel)
            if row is None:
                row = Counter(name=_DELIVERED + channel, value=last_value(session, "version"))
                session.add(row)
            return row.value

    def set_delivered(self, channel: str, event_id: int) -> None:
        with self._database.writing() as session:
            session.merge(Counter(name=_DELIVERED + channel, value=event_id))


def _tombstones(since: int, limit: int) -> SelectOfScalar[Event]:
    return select(Event).where(Event.kind == "deleted", col(Event.id) > since).order_by(col(Event.id)).limit(limit)
