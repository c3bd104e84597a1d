"""What retention asks of the tables: the finished jobs, and the removal of old events and audit entries."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Delete, delete, exists
from sqlmodel import Session, col, func, select

from rekindle.contract.states import TERMINAL, JobState
from rekindle_service.store.mutations import last_value, record
from rekindle_service.store.sqlite import StorePart
from rekindle_service.store.tables import AuditEntry, Counter, Event, Job
from rekindle_service.store.totals import jobs_by_state

_CLOCK = "retention:clock"
_TOMBSTONE = "deleted"
_CHUNK = 500  # ids in one question


class JobEntry(NamedTuple):
    """What retention knows of a job."""

    id: str
    number: int
    name: str
    owner: str | None
    state: JobState
    attempt: int
    created_at: float
    ended_at: float | None
    rewind: dict[str, Any]

    @property
    def finished(self) -> bool:
        return self.state in TERMINAL


class JobChanges(NamedTuple):
    """What has happened to jobs after a version; continue from ``latest``."""

    jobs: list[JobEntry]
    deleted: list[str]  # ids
    latest: int
    total: int  # all jobs then
    complete: bool  # nothing else has happened


class RetentionStore(StorePart):
    """Part of ``Store``."""

    def jobs(self) -> list[JobEntry]:
        """Every job, oldest first, without the columns that take long to read."""
        columns = [getattr(Job, name) for name in JobEntry._fields]
        with self._database.reading() as session:
            return [JobEntry(*row) for row in session.exec(select(*columns).order_by(col(Job.number)))]

    def entries(self, job_ids: Sequence[str]) -> Iterator[JobEntry]:
        """Some jobs, as far as they are there, in any order."""
        columns = [getattr(Job, name) for name in JobEntry._fields]
        for start in range(0, len(job_ids), _CHUNK):
            query = select(*columns).where(col(Job.id).in_(job_ids[start : start + _CHUNK]))
            with self._database.reading() as session:
                rows = session.exec(query).all()
            yield from (JobEntry(*row) for row in rows)

    def changes(self, since: int, limit: int = 2000) -> JobChanges:
        """The first ``limit`` jobs that were changed after version ``since``, and what was deleted meanwhile."""
        columns = [getattr(Job, name) for name in ("version", *JobEntry._fields)]
        changed = select(*columns).where(col(Job.version) > since).order_by(col(Job.version)).limit(limit)
        with self._database.reading() as session:
            rows = session.exec(changed).all()
            latest = max(since, last_value(session, "version")) if len(rows) < limit else rows[-1][0]
            deleted = select(Event.job_id).where(Event.kind == _TOMBSTONE, col(Event.id) > since)
            gone = list(session.exec(deleted.where(col(Event.id) <= latest)))
            total = sum(jobs_by_state(session).values())
        return JobChanges([JobEntry(*row[1:]) for row in rows], gone, latest, total, complete=len(rows) < limit)

    def record(self, job_id: str, kind: str, reason: str) -> None:
        """Add to the events of a job what happened to its files: ``pruned``, or ``mirror_failed``."""
        with self._database.writing() as session:
            if (job := session.get(Job, job_id)) is not None:
                job.version = record(session, job, kind, reason=reason)

    # --- events and audit entries

    def old_events(self, before: float, kept_tombstones: Collection[str]) -> int:
        """How many events ``remove_events`` would remove."""
        with self._database.reading() as session:
            return session.exec(select(func.count()).where(*_old(before, kept_tombstones))).one()

    def remove_events(self, before: float, kept_tombstones: Collection[str]) -> int:
        """Remove the events before a time, of jobs that have ended or are deleted; returns how many.

        The tombstone of a job in ``kept_tombstones`` stays: it distinguishes a deleted job from an unknown one.
        """
        with self._database.writing() as session:
            return _delete(session, delete(Event).where(*_old(before, kept_tombstones)))

    def old_audit_entries(self, before: float) -> int:
        with self._database.reading() as session:
            return session.exec(select(func.count()).select_from(AuditEntry).where(col(AuditEntry.at) < before)).one()

    def remove_audit_entries(self, before: float) -> int:
        with self._database.writing() as session:
            return _delete(session, delete(AuditEntry).where(col(AuditEntry.at) < before))

    # --- the clock

    def last_clock(self) -> int | None:
        """Seconds since the epoch when ``set_clock`` was called last."""
        with self._database.reading() as session:
            row = session.get(Counter, _CLOCK)
            return None if row is None else row.value

    def set_clock(self, now: float) -> None:
        with self._database.writing() as session:
            session.merge(Counter(name=_CLOCK, value=int(now)))


def _old(before: float, kept_tombstones: Collection[str]) -> list[ColumnElement[bool]]:
    """Conditions for old events, none of a job that is queued or runs."""
    unfinished = exists().where(col(Job.id) == col(Event.job_id), col(Job.state).not_in(TERMINAL))
    kept = (col(Event.kind) == _TOMBSTONE) & col(Event.job_id).in_(kept_tombstones)
    return [col(Event.at) < before, ~unfinished, ~kept]


def _delete(session: Session, statement: Delete) -> int:
    return session.connection().execute(statement).rowcount
