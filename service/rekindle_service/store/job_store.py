"""``Store``: every question to the tables and every change of them."""

import itertools
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

from sqlmodel import Session, col, select

from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import TERMINAL, JobIntent, JobState
from rekindle_service.store.access_store import AccessStore
from rekindle_service.store.bulk_changes import BulkChanges
from rekindle_service.store.change_feed import ChangeFeed
from rekindle_service.store.database import Database
from rekindle_service.store.delivery_store import DeliveryStore
from rekindle_service.store.device_store import DeviceStore
from rekindle_service.store.displacement_store import DisplacementStore
from rekindle_service.store.experiment_store import ExperimentStore
from rekindle_service.store.failure_store import FailureStore
from rekindle_service.store.job_lists import JobLists
from rekindle_service.store.job_lookup import Lookup
from rekindle_service.store.mutations import (
    by_key,
    check_way,
    forget,
    insert,
    move,
    next_value,
    next_values,
    record,
    set_columns,
)
from rekindle_service.store.overview_store import OverviewStore
from rekindle_service.store.projection import RowChanges
from rekindle_service.store.queue_store import NO_LIMIT, QueueRoom, QueueStore
from rekindle_service.store.recovery_store import RecoveryStore
from rekindle_service.store.retention_store import RetentionStore
from rekindle_service.store.tables import Attempt, Event, Job
from rekindle_service.store.totals import Totals, ensure_counted, goodput, jobs_by_state, totals
from rekindle_service.store.usage_store import UsageStore

_FOLDED_FROM = ("state", "journal_offset", "wanted_devices")


class Store(Database):
    """Thread-safe. Rows that it returns are plain values: to change one, call a method here.

    Every write to a job gives its row the next ``version`` of one sequence, which events share: whoever remembers the
    last version seen can ask for what came after it. Any method may raise StorageError.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._revisions = itertools.count(1)
        self.queue_revision = 0
        """Another number after every change that may let a queued job start; progress leaves it alone."""
        self.feed = ChangeFeed(self)
        self.bulk = BulkChanges(self._changing_queue)
        self.displacements = DisplacementStore(self._changing_queue)
        self.experiments = ExperimentStore(self, self._changing_queue)
        self.lists = JobLists(self)
        self.lookup = Lookup(self, Job)
        self.queue = QueueStore(self)
        self.overview = OverviewStore(self)
        self.usage = UsageStore(self)
        self.failures = FailureStore(self)
        self.deliveries = DeliveryStore(self)
        self.recovery = RecoveryStore(self)
        self.retention = RetentionStore(self)
        self.access = AccessStore(self)
        self.devices = DeviceStore(self)

    def migrate(self, *, backup: bool = True) -> None:
        super().migrate(backup=backup)
        with self.writing() as session:
            ensure_counted(session)

    @contextmanager
    def _changing_queue(self) -> Iterator[Session]:
        """The number changes after the commit: whoever sees the new one sees the change, too."""
        with self.writing() as session:
            yield session
        self.queue_revision = next(self._revisions)

    # --- jobs

    def reserve_numbers(self, count: int = 1) -> int:
        """The first of the next ``count`` numbers, which no other job gets."""
        with self.writing() as session:
            return next_values(session, "number", count)

    def add_job(
        self,
        job: Job,
        idempotency_key: str | None = None,
        *,
        numbered: bool = False,
        room: QueueRoom = NO_LIMIT,
    ) -> Job:
        """Insert ``job`` with the next number, or with its own if that was reserved for it (``numbered``).

        A key that was used before returns the job that it created then. Raises QueueFullError.
        """
        with self._changing_queue() as session:
            known = by_key(session, Job, idempotency_key)
            if known is None:
                room.require(session, 1)
                insert(session, job, idempotency_key, numbered=numbered)
            return known or job

    def confirmed(self) -> None:
        """Run directories got their names: their jobs may start."""
        self.queue_revision = next(self._revisions)

    def job_by_key(self, idempotency_key: str | None) -> Job | None:
        with self.reading() as session:
            return by_key(session, Job, idempotency_key)

    def job(self, job_id: str) -> Job | None:
        with self.reading() as session:
            return session.get(Job, job_id)

    def jobs_in(self, states: Collection[JobState], intents: Collection[JobIntent] | None = None) -> list[Job]:
        """Every job in one of ``states`` (and with one of ``intents``), oldest first."""
        query = select(Job).where(col(Job.state).in_(states))
        if intents is not None:
            query = query.where(col(Job.intent).in_(intents))
        return sorted(self.rows(query), key=attrgetter("number"))

    def queue_stats(self) -> tuple[dict[JobState, int], float | None]:
        """Jobs by state, and their mean goodput, each weighted by its time since the first launch and its ranks."""
        with self.reading() as session:
            return jobs_by_state(session), goodput(session, time.time())

    def totals(self) -> Totals:
        """What adds up over all jobs."""
        with self.reading() as session:
            return totals(session)

    def bundles_in_use(self) -> set[str]:
        """The ids of the bundles that the code of a job came from."""
        bundle = col(Job.spec)["code"]["bundle"].as_string()
        with self.reading() as session:
            return {each for each in session.exec(select(bundle).distinct()) if each is not None}

    def job_state(self, job_id: str) -> JobState | None:
        """The state of a job, for a deleted one the state that it ended in, or None where there was never one."""
        tombstone = select(Event).where(Event.job_id == job_id, Event.kind == "deleted")
        with self.reading() as session:
            state = session.exec(select(Job.state).where(Job.id == job_id)).first()
            if state is not None:
                return JobState(state)
            deleted = session.exec(tombstone).first()
            return JobState(deleted.from_state) if deleted is not None and deleted.from_state else None

    # --- changes of a job

    def transition(
        self, job_id: str, to: JobState, *, expected: Collection[JobState], reason: str, **changes: Any
    ) -> Job | None:
        """Move the job from one of ``expected`` to ``to`` and set ``changes``, with its event, in one transaction.

        None: the job is gone or was in another state, and nothing has changed. Raises ValueError for a way that
        ``TRANSITIONS`` does not have and for a column that cannot be set.
        """
        check_way(expected, to)
        with self._changing_queue() as session:
            job = session.get(Job, job_id)
            if job is None or job.state not in expected:
                return None
            set_columns(job, changes)
            move(session, job, to, reason, time.time())
            if to in TERMINAL:
                _end_attempts(session, job_id)
            return job

    def set_intent(
        self, job_id: str, intent: JobIntent, *, expected: Collection[JobIntent] = frozenset(JobIntent)
    ) -> Job | None:
        """Write what is wanted of the job in place of one of ``expected``; the engine acts on it.

        None: the job is gone or something else was wanted, and nothing has changed.
        """
        with self._changing_queue() as session:
            job = session.get(Job, job_id)
            if job is None or job.intent not in expected:
                return None
            if job.intent != intent:
                job.intent = JobIntent(intent)
                job.version = record(session, job, "intent", reason=f"{job.intent} wanted")
            return job

    def rewind_queued(self, job_id: str, rewind: dict[str, int]) -> Job | None:
        """Release a job in the queue, to begin its next run from an older snapshot; None where it is not there."""
        with self._changing_queue() as session:
            job = session.get(Job, job_id)
            if job is None or job.state is not JobState.QUEUED:
                return None
            set_columns(job, {"rewind": rewind, "intent": JobIntent.RUN, "snapshot_step": rewind["step"]})
            job.version = record(session, job, "intent", reason=f"{job.intent} wanted, from step {rewind['step']}")
            return job

    def patch_job(self, job_id: str, **changes: str | int | list[str]) -> Job | None:
        """Set columns that a person may change: name, priority, max_failures, tags and note."""
        with self._changing_queue() as session:
            job = session.get(Job, job_id)
            if job is not None and set_columns(job, changes):
                reason = ", ".join(f"{column} = {value!r}" for column, value in changes.items())
                job.version = record(session, job, "changed", reason=reason)
            return job

    def file_job(self, job_id: str, *, archived: bool | None = None, seen: bool | None = None) -> Job | None:
        """Put a job that has ended into the archive or take it out, and note whether a person has looked at its end.

        None: the job is gone or has not ended, and nothing has changed. What it has kept of either stays as it is.
        """
        wanted = {"archived_at": archived, "seen_at": seen}
        with self.writing() as session:
            job = session.get(Job, job_id)
            if job is None or job.state not in TERMINAL:
                return None
            given = {column: value for column, value in wanted.items() if value is not None}
            changes = {column: time.time() if on else None for column, on in given.items()}
            changed = {column: at for column, at in changes.items() if (getattr(job, column) is None) != (at is None)}
            if set_columns(job, changed):
                job.version = next_value(session, "version")
            return job

    def update_progress(self, job_id: str, **columns: Any) -> Job | None:
        """Set columns other than the state, without an event; the version grows only if one has another value."""
        with self.writing() as session:
            job = session.get(Job, job_id)
            if job is not None and set_columns(job, columns):
                job.version = next_value(session, "version")
            return job

    def delete_job(self, job_id: str) -> bool:
        """Forget a job that is over; an event stays as its tombstone. False: there is none, or it is not over."""
        with self._changing_queue() as session:
            job = session.get(Job, job_id)
            if job is None or job.state not in TERMINAL:
                return False
            forget(session, job)
            return True

    # --- attempts, events and the journal

    def attempts(self, job_id: str) -> list[Attempt]:
        """Every attempt of a job, oldest first."""
        query = select(Attempt).where(Attempt.job_id == job_id).order_by(col(Attempt.number))
        return self.rows(query)

    def apply_journal(self, job: Job, effect: RowChanges) -> Job | None:
        """Write what records of the journal mean and how far it was read, in one transaction: each counts once.

        ``job`` is the row that the effect was folded from. None: it has moved since, nothing was written, and the
        same records have to be folded again.
        """
        with self._changing_queue() as session:
            row = session.get(Job, job.id)
            if row is None or any(getattr(row, name) != getattr(job, name) for name in _FOLDED_FROM):
                return None
            for attempt in effect.attempts.values():
                session.merge(Attempt(**{**attempt.model_dump(), "job_id": row.id}))
            set_columns(row, {**effect.columns, "journal_offset": effect.offset})
            if effect.requeued and row.intent is JobIntent.DRAIN:
                row.intent = JobIntent.HOLD
            for change in effect.states:
                move(session, row, change.to, change.reason, change.at)
            for event in effect.events:
                record(session, row, event.kind, reason=event.sentence, at=event.at)
            row.version = next_value(session, "version")
            return row

    def events(self, job_id: str) -> list[Event]:
        """The story of a job, oldest first; also of a deleted one."""
        query = select(Event).where(Event.job_id == job_id).order_by(col(Event.id))
        return self.rows(query)


def _end_attempts(session: Session, job_id: str) -> None:
    """Those whose keeper can write no end any more; one of a later run corrects what it knows better."""
    outcome = Outcome(OutcomeClass.KEEPER_LOST, "Its keeper ended without a record of it.").to_json()
    open_attempts = select(Attempt).where(Attempt.job_id == job_id, col(Attempt.ended_at).is_(None))
    for attempt in session.exec(open_attempts):
        attempt.ended_at, attempt.outcome = time.time(), outcome
