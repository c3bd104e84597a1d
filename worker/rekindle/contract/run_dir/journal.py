"""The keeper's journal: appended, fsynced, never rewritten, so that the server can rebuild its rows from it."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform

from rekindle.contract.files import append_line, complete_lines, parse_json
from rekindle.contract.job_options import MAX_RANKS
from rekindle.contract.outcome import Outcome, SavedProgress
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.control_messages import Fault
from rekindle.contract.run_dir.json_records import Count, Line, Range, Sentences, structure
from rekindle.contract.run_dir.paths import MAX_ATTEMPT
from rekindle.contract.safe_open import open_regular
from rekindle.contract.states import TERMINAL, JobState

R = TypeVar("R", bound="Record")

MAX_JOURNAL_BYTES = 1 << 28
"""Limit of what is read: a keeper writes a few kilobytes for each attempt."""
_MAX_PROBLEM = 300  # characters

Number = Annotated[int, Range(0, 1 << 31)]
AttemptNumber = Annotated[int, Range(0, MAX_ATTEMPT)]
Rank = Annotated[int, Range(0, MAX_RANKS - 1)]
WorldSize = Annotated[int, Range(0, MAX_RANKS)]


class RecordType(StrEnum):
    """The types of record; the fields of each are those of its dataclass."""

    KEEPER_STARTED = "keeper_started"
    DEVICES_HELD = "devices_held"
    ROLLED_BACK = "rolled_back"
    ATTEMPT_STARTED = "attempt_started"
    RANKS_RUNNING = "ranks_running"
    SNAPSHOT_SKIPPED = "snapshot_skipped"
    RESUMED = "resumed"
    CHECKPOINT_LOADED = "checkpoint_loaded"
    CHECKPOINT_TORN = "checkpoint_torn"
    CHECKPOINT_CHOSEN = "checkpoint_chosen"
    STOP_REQUESTED = "stop_requested"
    RANK_EXITED = "rank_exited"
    ATTEMPT_ENDED = "attempt_ended"
    STRAGGLER = "straggler"
    STALLED = "stalled"
    FAULT_INJECTED = "fault_injected"
    RETRY_DECIDED = "retry_decided"
    JOB_ENDED = "job_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of a journal; ``end`` is the byte offset after it, which is not written."""

    type: ClassVar[RecordType | None] = None
    at: float  # seconds since the epoch
    end: int
    launch: Number | None = None  # of the keepers of a job on a cluster; see ``AttemptHistory.is_superseded``


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord(Record):
    """A record about one attempt."""

    attempt: AttemptNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed(Record):
    """A line of a known type that lacks the fields of that type: not written by a keeper."""

    kind: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedLines(Record):
    """No record: the lines up to ``end`` hold none."""


_RECORDS: dict[str, type[Record]] = {}


@dataclass_transform(frozen_default=True, kw_only_default=True)
def _record(record_type: RecordType) -> Callable[[type[R]], type[R]]:
    """Make a class the dataclass of the records of ``record_type``."""

    def decorate(cls: type[R]) -> type[R]:
        record = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        record.type = record_type
        _RECORDS[record_type] = record
        return record

    return decorate


@_record(RecordType.KEEPER_STARTED)
class KeeperStarted(Record):
    """A keeper has started. ``devices`` as in ``DevicesHeld``; None where it cannot change them within a run."""

    run: Number
    keeper: ProcessIdentity
    devices: list[Line] | None = None


@_record(RecordType.DEVICES_HELD)
class DevicesHeld(Record):
    """The server has given the job other devices: from now on the keeper uses none but these.

    While an attempt runs they include its own; the next attempt has those of the intent.
    """

    run: Number
    devices: list[Line]


@_record(RecordType.ROLLED_BACK)
class RolledBack(Record):
    """A user chose to resume the run from the snapshot of ``step``; newer ones were quarantined.

    ``missing``: there was no such snapshot any more, so that nothing was done.
    """

    run: Number
    step: Count
    quarantined: list[Count] = field(default_factory=list)
    missing: bool = False


@_record(RecordType.ATTEMPT_STARTED)
class AttemptStarted(AttemptRecord):
    """An attempt begins: ``world_size`` ranks on ``devices``."""

    run: Number
    world_size: WorldSize
    devices: list[Line]
    hosts: list[Line] = field(default_factory=list)  # of a job on a cluster, in the order of its nodes


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A rank's process, as its keeper found it."""

    rank: Rank
    pid: Number
    start_time: int


@_record(RecordType.RANKS_RUNNING)
class RanksRunning(AttemptRecord):
    """Every rank of the attempt runs the script."""

    ranks: list[RankProcess]


@_record(RecordType.SNAPSHOT_SKIPPED)
class SnapshotSkipped(AttemptRecord):
    """A damaged snapshot was skipped for the one before."""

    step: Count
    reason: Sentences


@_record(RecordType.RESUMED)
class Resumed(AttemptRecord):
    """The attempt continues from the snapshot of ``step``."""

    step: Count


@_record(RecordType.CHECKPOINT_LOADED)
class CheckpointLoaded(AttemptRecord):
    """The script has loaded this checkpoint of its own; the last record of an attempt counts."""

    path: Line  # relative to the working directory where it is in it


@_record(RecordType.CHECKPOINT_CHOSEN)
class CheckpointChosen(Record):
    """A user chose to resume the run from a checkpoint of the script's own; ``moved`` are newer ones, moved away.

    ``missing``: it was gone or replaced by then, so that nothing was done.
    """

    run: Number
    path: Line
    moved: list[Line] = field(default_factory=list)
    missing: bool = False


@_record(RecordType.CHECKPOINT_TORN)
class CheckpointTorn(AttemptRecord):
    """Before the attempt: a checkpoint that an earlier one was writing when it ended was moved away."""

    path: Line
    moved_to: Line
    written_by: AttemptNumber = 0  # the earlier attempt
    restored: bool = False  # the one that it was to replace is back in its place


@_record(RecordType.STOP_REQUESTED)
class StopRequested(AttemptRecord):
    """The ranks are about to get SIGTERM, or the keeper itself got it: exit code 0 is no success from now on."""

    ending: Line  # "drain", "cancel", "time_limit", "shutdown", "resize", "grow"


@_record(RecordType.RANK_EXITED)
class RankExited(AttemptRecord):
    """The process of a rank has ended, by an exit code or by a signal."""

    rank: Rank
    exit_code: int | None = None
    signal: Line | None = None  # "SIGKILL"
    killed: bool = False  # by the keeper


@_record(RecordType.ATTEMPT_ENDED)
class AttemptEnded(AttemptRecord):
    """The attempt has ended. Steps are as the ranks reported them; None where they reported none."""

    outcome: Outcome | None
    resumed_from_step: int | None = None
    last_step: int | None = None
    snapshot_step: int | None = None
    saving_seconds: float | None = None
    progress: SavedProgress = SavedProgress.UNKNOWN
    running_seconds: float | None = None  # that all ranks ran, without the time of a hang
    loaded: bool | None = None  # a checkpoint of an earlier attempt; None: not known


@_record(RecordType.STRAGGLER)
class Straggler(AttemptRecord):
    """The other ranks wait for one rank, or no longer do."""

    rank: Rank
    share: float | None  # of the time that the others wait for it; None once they no longer do


@_record(RecordType.STALLED)
class AttemptStalled(AttemptRecord):
    """The attempt has made no progress for a while, or (``sentence`` is None) makes progress again."""

    sentence: Line | None  # which rank the others wait for, and where
    since: float | None = None  # seconds since the epoch, as the next one
    hung_at: float | None = None  # when it counts as hung
    rank: Rank | None = None


@_record(RecordType.FAULT_INJECTED)
class FaultInjected(AttemptRecord):
    """A fault was injected on a user's request. ``snapshot``: the step of the damaged one."""

    fault: Fault
    rank: Rank | None = None
    snapshot: Count | None = None


@_record(RecordType.RETRY_DECIDED)
class RetryDecided(AttemptRecord):
    """Another attempt follows after a back-off of ``delay`` seconds."""

    reason: Sentences
    next_try_at: float  # seconds since the epoch
    delay: float = 0.0  # seconds


@_record(RecordType.JOB_ENDED)
class JobEnded(Record):
    """The run has ended; ``state`` is QUEUED for a drained one."""

    run: Number
    state: JobState
    reason: Sentences
    outcome: Outcome | None = None

    def __post_init__(self) -> None:
        if self.state not in TERMINAL | {JobState.QUEUED}:
            raise ValueError(f"state: a run ends as succeeded, failed, cancelled or queued, not as {self.state}")


class Journal:
    """The writer's end of a journal; only the live keeper holds one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, record_type: RecordType, *, at: float | None = None, **fields: Any) -> None:
        """Append a record of what happened ``at`` (seconds since the epoch, or now). Raises OSError on a full disk."""
        append_line(self._path, {"type": record_type, "at": time.time() if at is None else at, **fields})


def read_journal(path: Path, offset: int = 0, *, max_bytes: int = MAX_JOURNAL_BYTES) -> Iterator[Record]:
    """Every complete record from byte ``offset`` on. Torn lines and unknown types are skipped.

    No record that begins ``max_bytes`` after ``offset`` or later is read, nor one that begins after
    ``MAX_JOURNAL_BYTES``: the last record is ``SkippedLines`` where none ends there, so that a reader can continue.
    """
    stop = min(offset + max_bytes, MAX_JOURNAL_BYTES)
    reached = read = offset
    with suppress(FileNotFoundError), open_regular(path) as file:
        for reached, line in complete_lines(file, offset, end=stop):
            if (record := _parse(line, reached)) is not None:
                read = reached
                yield record
        if reached > read and reached >= stop:
            yield SkippedLines(at=0.0, end=reached)


_TIMES = ("at", "next_try_at", "since", "hung_at")


def earlier(record: R, seconds: float) -> R:
    """The same record by a clock that lags ``seconds`` behind the one by which it was written."""
    if not seconds:
        return record
    times = {name: getattr(record, name, None) for name in _TIMES}
    return replace(record, **{name: at - seconds for name, at in times.items() if at is not None})


def _parse(line: bytes, end: int) -> Record | None:
    value = parse_json(line)
    if not isinstance(value, dict):
        return None
    kind = str(value.get("type"))
    if kind not in _RECORDS:
        return None
    try:
        return structure(_RECORDS[kind], {**value, "end": end})
    except ValueError as error:
        return Malformed(at=0.0, end=end, kind=kind, problem=str(error)[:_MAX_PROBLEM])
