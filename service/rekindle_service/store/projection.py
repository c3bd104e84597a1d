"""What records of a keeper's journal mean for the rows of its job; decided here, written by the store."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekindle.contract.chaos import Fault
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.journal import Record, RecordType
from rekindle.contract.states import HOLDING_SLOTS, TERMINAL, JobState
from rekindle_service.store.tables import Attempt, Job


@dataclass(frozen=True, slots=True)
class StateChange:
    """One step of the job's way."""

    to: JobState
    reason: str
    at: float  # seconds since the epoch


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """Something that changes no state and belongs to the job's story: a fault that a user injected, a straggler."""

    kind: str  # of the event: "chaos", "straggler"
    sentence: str
    at: float  # seconds since the epoch


@dataclass(slots=True)
class RowChanges:
    """All that some records change, to be written in one transaction with the ``offset`` behind them."""

    offset: int
    states: list[StateChange] = field(default_factory=list)
    columns: dict[str, Any] = field(default_factory=dict)  # of the job's row
    attempts: dict[int, Attempt] = field(default_factory=dict)  # those that the records touch, by number
    remarks: list[TimelineEvent] = field(default_factory=list)
    requeued: bool = False  # a wish to drain has come true: the job is held, unless something else is wanted by now


def project(job: Job, attempts: Sequence[Attempt], records: Iterable[Record]) -> RowChanges | None:
    """The effect of ``records``, all of them newer than what is in ``job`` and ``attempts``; None without records.

    A record with missing or senseless fields changes nothing but the job's notice.
    """
    folding = JournalReducer(job, attempts)
    for record in records:
        try:
            folding.apply(record)
        except (KeyError, TypeError, ValueError) as error:
            notice = f"journal.jsonl, record before byte {record.end} ({record.type}): {error!r}; it was passed over"
            folding.effect.columns["notice"] = notice
    return folding.effect if folding.effect.offset != job.journal_offset else None


class JournalReducer:
    """The rows as they would be after the records so far."""

    def __init__(self, job: Job, attempts: Sequence[Attempt]) -> None:
        self.effect = RowChanges(job.journal_offset)
        self._state = job.state
        self._run = job.run
        self._attempts = {attempt.number: attempt for attempt in attempts}

    def apply(self, record: Record) -> None:
        self.effect.offset = record.end
        match record.type:
            case RecordType.ATTEMPT_STARTED:
                self._attempt_started(record)
            case RecordType.RANKS_RUNNING:
                self._attempt(record).ranks_running_at = record.at
                self.effect.columns.update(outcome=None, next_try_at=None)
                self._move(JobState.RUNNING, "every rank runs", record)
            case RecordType.RESUMED:
                self._attempt(record).resumed_from_step = record.fields["step"]
            case RecordType.ATTEMPT_ENDED:
                self._attempt_ended(record)
            case RecordType.FAULT_INJECTED | RecordType.SNAPSHOT_SKIPPED | RecordType.STRAGGLER | RecordType.REWOUND:
                self._remark(record)
            case RecordType.RETRY_DECIDED:
                self._retry_decided(record)
            case RecordType.JOB_ENDED:
                self._job_ended(record)
            case RecordType.KEEPER_STARTED | RecordType.RANK_EXITED:
                pass

    def _attempt(self, record: Record) -> Attempt:
        """The row of the attempt that ``record`` speaks of, marked as touched."""
        number = int(record.fields["attempt"])
        known = self._attempts.get(number)
        if known is None:
            known = Attempt(job_id="", number=number, run=self._run, started_at=record.at)
            self._attempts[number] = known
        self.effect.attempts[number] = known
        return known

    def _attempt_started(self, record: Record) -> None:
        attempt = self._attempt(record)
        attempt.run = int(record.fields["run"])
        attempt.world_size = int(record.fields["world_size"])
        attempt.devices = [str(device) for device in record.fields["devices"]]
        runs = {one.run for one in self._attempts.values()}
        self.effect.columns.update(
            attempt=max(self._attempts),
            world_size=attempt.world_size,
            restarts=len(self._attempts) - len(runs),
            next_try_at=None,
            phase=None,
            steps_per_second=None,
            eta_seconds=None,
        )

    def _attempt_ended(self, record: Record) -> None:
        attempt = self._attempt(record)
        attempt.ended_at = record.at
        attempt.outcome = record.fields["outcome"]
        attempt.resumed_from_step = record.fields.get("resumed_from_step", attempt.resumed_from_step)
        attempt.last_step = record.fields.get("last_step")
        attempt.snapshot_step = record.fields.get("snapshot_step")
        attempt.saving_seconds = _seconds(record.fields.get("saving_seconds"))
        self.effect.columns.update(outcome=attempt.outcome, phase=None, steps_per_second=None, eta_seconds=None)
        if attempt.snapshot_step is not None:
            self.effect.columns["snapshot_step"] = attempt.snapshot_step

    def _remark(self, record: Record) -> None:
        """What is part of the story and changes no state."""
        match record.type:
            case RecordType.FAULT_INJECTED:
                self._fault_injected(record)
            case RecordType.SNAPSHOT_SKIPPED:
                self._snapshot_skipped(record)
            case RecordType.REWOUND:
                self._rewound(record)
            case _:
                self._straggler(record)

    def _fault_injected(self, record: Record) -> None:
        fault = Fault(record.fields["fault"]).value
        rank, snapshot = _number(record.fields.get("rank")), _number(record.fields.get("snapshot"))
        attempt = self._attempt(record)
        attempt.faults = [*attempt.faults, {"at": record.at, "fault": fault, "rank": rank, "snapshot": snapshot}]
        victim = "" if rank is None else f" rank {rank}"
        victim += "" if snapshot is None else f" of step {snapshot}"
        self.effect.remarks.append(TimelineEvent("chaos", f"attempt {attempt.number}: {fault}{victim}", record.at))

    def _snapshot_skipped(self, record: Record) -> None:
        step, reason = int(record.fields["step"]), str(record.fields["reason"])
        sentence = f"attempt {int(record.fields['attempt'])}: the snapshot of step {step} was passed over: {reason}"
        self.effect.remarks.append(TimelineEvent("snapshot_skipped", sentence, record.at))

    def _rewound(self, record: Record) -> None:
        step, aside = int(record.fields["step"]), [int(each) for each in record.fields["set_aside"]]
        others = ", ".join(map(str, aside)) or "none"
        sentence = f"back to the snapshot of step {step}; set aside, newer than it: {others}"
        self.effect.remarks.append(TimelineEvent("rewound", sentence, record.at))

    def _straggler(self, record: Record) -> None:
        rank, share = int(record.fields["rank"]), record.fields["share"]
        told = "the others no longer wait" if share is None else f"the others wait {float(share):.0%} of the time"
        self.effect.remarks.append(
            TimelineEvent("straggler", f"attempt {int(record.fields['attempt'])}: {told} for rank {rank}", record.at)
        )

    def _retry_decided(self, record: Record) -> None:
        attempt = self._attempt(record)
        attempt.reason = str(record.fields["reason"])
        attempt.next_try_at = float(record.fields["next_try_at"])
        self.effect.columns["next_try_at"] = attempt.next_try_at
        self._move(JobState.RECOVERING, attempt.reason, record)

    def _job_ended(self, record: Record) -> None:
        """The end of the run it names; of a run that is over already it says nothing new."""
        if int(record.fields["run"]) < self._run or self._state not in HOLDING_SLOTS:
            return
        to = JobState(record.fields["state"])
        if to not in TERMINAL | {JobState.QUEUED}:
            raise ValueError(f"a run ends as succeeded, failed, cancelled or queued, not as {to}")
        reason = str(record.fields["reason"])
        if self._attempts:
            last = self._attempts[max(self._attempts)]
            last.reason = last.reason or reason
            self.effect.attempts[last.number] = last
        self.effect.columns.update(devices=[], next_try_at=None, phase=None, steps_per_second=None, eta_seconds=None)
        self.effect.columns["outcome"] = record.fields.get("outcome") or _bare_outcome(to, reason)
        if to in TERMINAL:
            self.effect.columns["ended_at"] = record.at
        if to is JobState.SUCCEEDED:
            self.effect.columns["progress"] = 1.0
        self.effect.requeued = to is JobState.QUEUED
        self._move(to, reason, record)

    def _move(self, to: JobState, reason: str, record: Record) -> None:
        if self._state in HOLDING_SLOTS and self._state is not to:
            self.effect.states.append(StateChange(to, reason, record.at))
            self._state = to


def _number(value: object) -> int | None:
    """Raises TypeError for what is neither a whole number nor None."""
    if value is not None and not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _seconds(value: object) -> float | None:
    """Raises TypeError for what is neither a number nor None."""
    if value is not None and not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number of seconds")
    return value


def _bare_outcome(ended_as: JobState, reason: str) -> dict[str, Any] | None:
    """The outcome of a run that was stopped between two attempts."""
    klass = {JobState.CANCELLED: OutcomeClass.CANCELLED, JobState.QUEUED: OutcomeClass.PREEMPTED}.get(ended_as)
    return None if klass is None else Outcome(klass, reason, retryable=False).to_json()
