"""``Store``: every question to the tables and every change of them."""

import itertools
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

from sqlmodel import Session, col, select

from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.attempt_history import AttemptInfo, AttemptSummary
from rekindle.contract.states import HOLDING_SLOTS, TERMINAL, JobIntent, JobState
from rekindle_service.store.access_store import AccessStore
from rekindle_service.store.attempt_rows import attempt_row, read_row, read_summaries
from rekindle_service.store.experiment_store import ExperimentStore
from rekindle_service.store.job_queries import JobLists, Lookup
from rekindle_service.store.mutations import (
    JOBS_AT_ONCE,
    ChangeFeed,
    by_key,
    check_way,
    forget,
    insert,
    move,
    next_value,
    next_values,
    record,
    set_columns,
    versioned,
)
from rekindle_service.store.projection import RowChanges
from rekindle_service.store.queue_store import NO_LIMIT, DeviceStore, QueueRoom, QueueStore
from rekindle_service.store.recovery_store import RecoveryStore
from rekindle_service.store.retention_store import RetentionStore
from rekindle_service.store.sqlite import Database
from rekindle_service.store.storage_errors import StorageError
from rekindle_service.store.tables import CHECKED, Attempt, Event, Job
from rekindle_service.store.totals import JobTotals, holding_after, totals

_FOLDED_FROM = ("state", "journal_offset", "wanted_devices")
_DISPLACED_FROM = ("state", "intent", "run", "devices", "wanted_devices", "displaced")


class Store(Database):
    """Thread-safe. Rows that it returns are plain values: to change one, call a method here.

    Every write to a job gives its row the next ``version`` of one sequence, which events share: whoever remembers the
    last version seen can ask for what came after it. Any method may raise StorageError.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._revisions = itertools.count(1)
        self._holding: Mapping[str, Job] | None = None
        self.queue_revision = 0
        """Another number after every change that may let a queued job start; progress leaves it alone."""
        self.feed = ChangeFeed(self)
        self.experiments = ExperimentStore(self, self._changing_queue)
        self.lists = JobLists(self)
        self.lookup = Lookup(self, Job)
        self.queue = QueueStore(self)
        self.recovery = RecoveryStore(self)
        self.retention = RetentionStore(self)
        self.access = AccessStore(self)
        self.devices = DeviceStore(self)

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
                job.idempotency_key = idempotency_key
                insert(session, [job], numbered=numbered)
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

    def holding(self) -> list[Job]:
        """Every job that holds slots, oldest first, from memory.

        The first call asks the database, and the first one after a change that failed.
        """
        holding = self._holding
        if holding is None:
            with self._turn:
                query = select(Job).where(col(Job.state).in_(HOLDING_SLOTS))
                holding = self._holding = {job.id: job for job in self.rows(query)}
        return sorted(holding.values(), key=attrgetter("number"))

    @contextmanager
    def writing(self) -> Iterator[Session]:
        try:
            with super().writing() as session:
                yield session
        except StorageError:
            self._holding = None  # the change may have been committed: ask the database again
            raise

    def _committed(self, session: Session) -> None:
        if self._holding is not None:
            self._holding = holding_after(self._holding, session)

    def device_checks(self) -> list[Job]:
        """Every job that has ended with an open device check, oldest first."""
        return self.rows(select(Job).where(CHECKED, col(Job.state).in_(TERMINAL)).order_by(col(Job.number)))

    def totals(self) -> JobTotals:
        """What adds up over all jobs."""
        with self.reading() as session:
            return totals(session, time.time())

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

    def displace(
        self, job: Job, kind: str, reason: str, *, by: str | None = None, wanted: list[str] | None = None
    ) -> Job | None:
        """Stop ``job`` for the queue, or have its next attempt run on the slots ``wanted``; with an event of ``kind``.

        It holds both its slots and the wanted ones until its keeper's journal shows that it needs only these. ``kind``,
        ``by`` and ``reason`` are as in ``JobPublic.displaced``. None: it has changed since the row was read, and
        nothing was written.
        """
        with self._changing_queue() as session:
            row = session.get(Job, job.id)
            if row is None or row.state not in HOLDING_SLOTS or row.intent is not JobIntent.RUN:
                return None
            if any(getattr(row, name) != getattr(job, name) for name in _DISPLACED_FROM):
                return None
            before = (row.displaced or {}).get("before") or row.devices
            displaced = {"kind": kind, "by": by, "reason": reason, "at": time.time(), "before": before}
            devices = list(dict.fromkeys([*row.devices, *(wanted or [])]))
            set_columns(row, {"displaced": displaced, "wanted_devices": wanted, "devices": devices})
            row.version = record(session, row, kind, reason=reason)
            return row

    def rewind_queued(self, job_id: str, rewind: dict[str, Any], **columns: Any) -> Job | None:
        """Release a job in the queue, to begin its next run from what is chosen; None where it is not there."""
        with self._changing_queue() as session:
            job = session.get(Job, job_id)
            if job is None or job.state is not JobState.QUEUED:
                return None
            set_columns(job, {"rewind": rewind, "intent": JobIntent.RUN, **columns})
            chosen = rewind["path"] if "path" in rewind else f"step {rewind['step']}"
            job.version = record(session, job, "intent", reason=f"{job.intent} wanted, from {chosen}")
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
        with self._changing_queue() if "devices" in columns else self.writing() as session:
            job = session.get(Job, job_id)
            if job is not None and set_columns(job, columns):
                job.version = next_value(session, "version")
            return job

    def end_device_check(self, job_id: str, sentence: str) -> None:
        """Close the check of a job, with its result as notice and event."""
        with self.writing() as session:
            job = session.get(Job, job_id)
            if job is not None and set_columns(job, {"device_check": None, "notice": sentence}):
                job.version = record(session, job, "device_check", reason=sentence)

    def delete_job(self, job_id: str) -> bool:
        """Forget a job that is over; an event stays as its tombstone. False: there is none, or it is not over."""
        with self._changing_queue() as session:
            job = session.get(Job, job_id)
            if job is None or job.state not in TERMINAL:
                return False
            forget(session, job)
            return True

    # --- the same change of many jobs, in few transactions: each of them lasts a moment, since all others wait for it.
    # After a crash, or a StorageError, the first jobs are changed and the others are not.

    def transition_all(
        self, job_ids: Sequence[str], to: JobState, *, expected: Collection[JobState], reason: str, **changes: Any
    ) -> None:
        """Move each job as ``transition`` does. Raises ValueError as it does."""
        check_way(expected, to)

        def change(session: Session, jobs: Sequence[Job]) -> None:
            now = time.time()
            for version, job in versioned(session, [job for job in jobs if job.state in expected]):
                set_columns(job, changes)
                move(session, job, to, reason, now, version=version)

        self._change_all(job_ids, change)

    def set_intents(self, job_ids: Sequence[str], intent: JobIntent) -> None:
        """Set the intent of each job that has not ended, as ``set_intent`` does."""

        def change(session: Session, jobs: Sequence[Job]) -> None:
            changed = [job for job in jobs if job.state not in TERMINAL and job.intent != intent]
            for version, job in versioned(session, changed):
                job.intent = intent
                job.version = record(session, job, "intent", reason=f"{intent} wanted", version=version)

        self._change_all(job_ids, change)

    def _change_all(self, job_ids: Sequence[str], change: Callable[[Session, Sequence[Job]], None]) -> None:
        """``change`` gets the jobs part by part in the order of ``job_ids``, without those that are gone."""
        for start in range(0, len(job_ids), JOBS_AT_ONCE):
            part = job_ids[start : start + JOBS_AT_ONCE]
            with self._changing_queue() as session:
                rows = {job.id: job for job in session.exec(select(Job).where(col(Job.id).in_(part)))}
                change(session, [rows[job_id] for job_id in part if job_id in rows])

    # --- attempts, events and the journal

    def attempts(self, job_id: str) -> list[AttemptSummary]:
        """Every attempt of a job, oldest first."""
        with self.reading() as session:
            return [attempt for _, attempt in read_summaries(session, col(Attempt.job_id) == job_id)]

    def attempt(self, job_id: str, number: int) -> AttemptInfo | None:
        """One attempt with all that is known of it."""
        with self.reading() as session:
            row = session.get(Attempt, (job_id, number))
            return None if row is None else read_row(AttemptInfo, row)

    def detailed_attempts(self, job_id: str) -> list[AttemptInfo]:
        """Every attempt of a job with all that is known of it, oldest first."""
        query = select(Attempt).where(Attempt.job_id == job_id).order_by(col(Attempt.number))
        return [read_row(AttemptInfo, row) for row in self.rows(query)]

    def attempt_numbers(self, job_id: str) -> list[int]:
        with self.reading() as session:
            return list(session.exec(select(Attempt.number).where(Attempt.job_id == job_id)))

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
                session.merge(attempt_row(row.id, attempt))
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
    """End the attempts whose keeper can write no end any more; one of a later run corrects what it knows better."""
    outcome = Outcome(OutcomeClass.KEEPER_LOST, "Its keeper ended without a record of it.").to_json()
    open_attempts = select(Attempt).where(Attempt.job_id == job_id, col(Attempt.ended_at).is_(None))
    for attempt in session.exec(open_attempts):
        attempt.ended_at, attempt.outcome = time.time(), outcome
