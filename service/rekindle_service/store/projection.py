"""What records of a keeper's journal mean for the rows of its job; decided here, written by the store."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir import journal
from rekindle.contract.run_dir.attempt_history import AttemptHistory, AttemptInfo
from rekindle.contract.run_dir.journal import AttemptRecord, Record
from rekindle.contract.states import HOLDING_SLOTS, TERMINAL, JobState
from rekindle_service.store.tables import Job

_MAX_EVENTS = 100  # of the records that are read at once: a keeper writes few
_NO_PROGRESS = {"phase": None, "steps_per_second": None, "eta_seconds": None, "stalled": None}


@dataclass(frozen=True, slots=True)
class StateChange:
    """One transition of the job."""

    to: JobState
    reason: str
    at: float  # seconds since the epoch


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """Something that changes no state and belongs to the job's history: an injected fault, a straggler."""

    kind: str  # of the event: "chaos", "straggler"
    sentence: str
    at: float  # seconds since the epoch


@dataclass(slots=True)
class RowChanges:
    """All that some records change, to be written in one transaction with the ``offset`` after them."""

    offset: int
    states: list[StateChange] = field(default_factory=list)
    columns: dict[str, Any] = field(default_factory=dict)  # of the job's row
    attempts: dict[int, AttemptInfo] = field(default_factory=dict)  # those that the records concern, by number
    events: list[TimelineEvent] = field(default_factory=list)
    requeued: bool = False  # a drain is complete: the job is held, unless its intent is another one by now


def project(job: Job, attempts: Sequence[AttemptInfo], records: Iterable[Record]) -> RowChanges | None:
    """The effect of ``records``, all of them newer than what is in ``job`` and ``attempts``; None without records.

    Malformed records change nothing but the job's notice, and the history of the job names them.
    """
    reducer = JournalReducer(job, attempts)
    for record in records:
        reducer.apply(record)
    changes = reducer.changes()
    return changes if changes.offset != job.journal_offset else None


class JournalReducer:
    """The rows as they would be after the records so far: attempts by ``AttemptHistory``, the job's state here."""

    def __init__(self, job: Job, attempts: Sequence[AttemptInfo]) -> None:
        self._changes = RowChanges(job.journal_offset)
        self._state, self._run = job.state, job.run
        self._held, self._wanted = set(job.devices), job.wanted_devices
        self._malformed: list[journal.Malformed] = []
        self._touched: set[int] = set()
        self._history = AttemptHistory(attempts, **job.last_keeper)

    def changes(self) -> RowChanges:
        if self._malformed:
            self._name_malformed()
        if len(self._changes.events) > _MAX_EVENTS:
            left_out = f"and {len(self._changes.events) - _MAX_EVENTS} more that came at once"
            self._changes.events[_MAX_EVENTS:] = [TimelineEvent("left_out", left_out, self._changes.events[-1].at)]
        self._changes.attempts = {number: self._history.attempts[number] for number in sorted(self._touched)}
        self._changes.columns["last_keeper"] = self._history.last_keeper
        return self._changes

    def apply(self, record: Record) -> None:
        self._changes.offset = record.end
        if self._history.is_superseded(record):
            return
        known = isinstance(record, journal.AttemptStalled) and self._is_stalled(record) is (record.sentence is not None)
        self._history.apply(record)
        if isinstance(record, AttemptRecord):
            self._touched.add(record.attempt)
        elif isinstance(record, journal.JobEnded) and self._history.latest is not None:
            self._touched.add(self._history.latest.number)  # its reason
        if (event := _event(record)) is not None and not known:
            self._changes.events.append(event)
        self._apply_to_job(record)

    def _is_stalled(self, record: AttemptRecord) -> bool:
        attempt = self._history.attempts.get(record.attempt)
        return attempt is not None and attempt.is_stalled

    def _apply_to_job(self, record: Record) -> None:  # noqa: C901  # a table of records
        columns = self._changes.columns
        match record:
            case journal.KeeperStarted() | journal.DevicesHeld() if record.run >= self._run:
                self._release(record)
            case journal.AttemptStarted():
                self._settle(record)
                columns.update(attempt=max(self._history.attempts), world_size=record.world_size, next_try_at=None)
                columns.update(restarts=self._history.restarts, **_NO_PROGRESS)
            case journal.RanksRunning():
                columns.update(outcome=None, next_try_at=None)
                self._move(JobState.RUNNING, "every rank runs", record)
            case journal.AttemptEnded():
                columns.update(outcome=_json(record.outcome), **_NO_PROGRESS)
                if record.snapshot_step is not None:
                    columns["snapshot_step"] = record.snapshot_step
            case journal.AttemptStalled():
                shown = ("sentence", "since", "hung_at", "rank")
                columns["stalled"] = record.sentence and {name: getattr(record, name) for name in shown}
            case journal.RetryDecided():
                columns["next_try_at"] = record.next_try_at
                if not self._history.attempts[record.attempt].is_resized:
                    self._move(JobState.RECOVERING, record.reason, record)
            case journal.JobEnded() if record.run >= self._run and self._state in HOLDING_SLOTS:
                self._end(record)
            case journal.Malformed():
                self._malformed.append(record)

    def _settle(self, record: journal.AttemptStarted) -> None:
        """An attempt begins on the devices that the job was to get: it has left the others."""
        if record.run >= self._run and record.devices == self._wanted:
            self._change_devices(record.devices, record.at)

    def _release(self, record: journal.KeeperStarted | journal.DevicesHeld) -> None:
        """The keeper uses no device but these; more devices are settled only once an attempt runs on them."""
        if isinstance(record, journal.KeeperStarted):
            self._changes.columns["can_resize"] = record.devices is not None
        if self._wanted is not None and set(record.devices or []) == set(self._wanted) < self._held:
            self._change_devices(self._wanted, record.at)

    def _change_devices(self, devices: list[str], at: float) -> None:
        self._held, self._wanted = set(devices), None
        self._changes.columns.update(devices=devices, wanted_devices=None, displaced=None, devices_since=at)

    def _name_malformed(self) -> None:
        last, count = self._malformed[-1], len(self._malformed)
        before = "" if count == 1 else f"{count} records skipped; the last: "
        notice = f"journal.jsonl, {before}record before byte {last.end} ({last.kind}) skipped: {last.problem}"
        self._changes.columns["notice"] = notice
        self._changes.events.append(TimelineEvent("records_skipped", notice, time.time()))

    def _end(self, record: journal.JobEnded) -> None:
        """The end of the job's current run."""
        columns, to = self._changes.columns, record.state
        columns.update(devices=[], next_try_at=None, **_NO_PROGRESS)
        columns["outcome"] = _json(record.outcome or _bare_outcome(to, record.reason))
        if to in TERMINAL:
            columns["ended_at"] = record.at
        if to is JobState.SUCCEEDED:
            columns["progress"] = 1.0
        self._changes.requeued = to is JobState.QUEUED
        self._move(to, record.reason, record)

    def _move(self, to: JobState, reason: str, record: Record) -> None:
        if self._state in HOLDING_SLOTS and self._state is not to:
            self._changes.states.append(StateChange(to, reason, record.at))
            self._state = to


def _event(record: Record) -> TimelineEvent | None:
    """What belongs to the job's history without changing its state."""
    match record:
        case journal.FaultInjected(attempt=number, fault=fault):
            target = "" if record.rank is None else f" rank {record.rank}"
            target += "" if record.snapshot is None else f" of step {record.snapshot}"
            return TimelineEvent("chaos", f"attempt {number}: {fault}{target}", record.at)
        case journal.SnapshotSkipped(attempt=number):
            sentence = f"attempt {number}: the snapshot of step {record.step} was skipped: {record.reason}"
            return TimelineEvent("snapshot_skipped", sentence, record.at)
        case journal.CheckpointTorn(attempt=number):
            sentence = (
                f"attempt {number}: the checkpoint {record.path} is torn, since attempt {record.written_by} ended "
                f"while it was being written; moved to {record.moved_to}"
            )
            sentence += ", and the one before it is back in its place" if record.restored else ""
            return TimelineEvent("checkpoint_torn", sentence, record.at)
        case journal.RolledBack() | journal.CheckpointChosen():
            return _went_back(record)
        case journal.AttemptStalled(attempt=number, sentence=None):
            return TimelineEvent("progress", f"attempt {number}: progress again", record.at)
        case journal.AttemptStalled(attempt=number):
            return TimelineEvent("stalled", f"attempt {number}: no progress: {record.sentence}", record.at)
        case journal.Straggler(attempt=number, share=share):
            waiting = "the others no longer wait" if share is None else f"the others wait {share:.0%} of the time"
            return TimelineEvent("straggler", f"attempt {number}: {waiting} for rank {record.rank}", record.at)
        case _:
            return None


def _went_back(record: journal.RolledBack | journal.CheckpointChosen) -> TimelineEvent:
    match record:
        case journal.RolledBack(step=step, missing=True):
            sentence = f"there is no snapshot of step {step} any more: the job continues from its latest one"
        case journal.CheckpointChosen(path=path, missing=True):
            sentence = f"the checkpoint {path} was gone or replaced: the job continues with what the script finds"
        case journal.RolledBack(step=step):
            sentence = f"back to the snapshot of step {step}; quarantined: {_listed(record.quarantined)}"
        case journal.CheckpointChosen(path=path):
            sentence = f"back to the checkpoint {path}; moved away: {_listed(record.moved)}"
    return TimelineEvent("snapshot_skipped" if record.missing else "rolled_back", sentence, record.at)


def _listed(names: Sequence[object]) -> str:
    return ", ".join(map(str, names)) or "none"


def _json(outcome: Outcome | None) -> dict[str, Any] | None:
    return None if outcome is None else outcome.to_json()


def _bare_outcome(ended_as: JobState, reason: str) -> Outcome | None:
    """The outcome of a run that was stopped between two attempts."""
    klass = {JobState.CANCELLED: OutcomeClass.CANCELLED, JobState.QUEUED: OutcomeClass.PREEMPTED}.get(ended_as)
    return None if klass is None else Outcome(klass, reason, retryable=False)
