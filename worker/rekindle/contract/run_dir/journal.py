"""The keeper's journal: appended, fsynced, never rewritten. One dataclass per type of record.

The server copies it into rows and can rebuild them from it.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar

from rekindle.contract.chaos import Fault
from rekindle.contract.files import append_line, read_lines
from rekindle.contract.outcome import Outcome
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.json_records import Count, Range, structure, with_current_names
from rekindle.contract.states import TERMINAL, JobState

Number = Annotated[int, Range(0, 1 << 31)]
WorldSize = Annotated[int, Range(0, 1 << 16)]


class RecordType(StrEnum):
    """The types of record; the fields of each are those of its dataclass."""

    KEEPER_STARTED = "keeper_started"
    ROLLED_BACK = "rolled_back"
    ATTEMPT_STARTED = "attempt_started"
    RANKS_RUNNING = "ranks_running"
    SNAPSHOT_SKIPPED = "snapshot_skipped"
    RESUMED = "resumed"
    RANK_EXITED = "rank_exited"
    ATTEMPT_ENDED = "attempt_ended"
    STRAGGLER = "straggler"
    FAULT_INJECTED = "fault_injected"
    RETRY_DECIDED = "retry_decided"
    JOB_ENDED = "job_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of a journal; ``end`` is the byte offset after it, which is not written."""

    type: ClassVar[RecordType]
    at: float  # seconds since the epoch
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed(Record):
    """A line of a known type that lacks the fields of that type: not written by a keeper."""

    kind: RecordType
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperStarted(Record):
    type = RecordType.KEEPER_STARTED
    run: Number
    keeper: ProcessIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack(Record):
    """A user chose to resume the run from the snapshot of ``step``; newer ones were quarantined."""

    type = RecordType.ROLLED_BACK
    run: Number
    step: Count
    quarantined: list[Count] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord(Record):
    """A record about one attempt."""

    attempt: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted(AttemptRecord):
    type = RecordType.ATTEMPT_STARTED
    run: Number
    world_size: WorldSize
    devices: list[str]
    generation: str = ""
    warm: bool = True


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A rank's process, as its keeper found it."""

    rank: Number
    local_rank: Number
    pid: Number
    start_time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksRunning(AttemptRecord):
    type = RecordType.RANKS_RUNNING
    ranks: list[RankProcess]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSkipped(AttemptRecord):
    """A damaged snapshot was skipped for the one before."""

    type = RecordType.SNAPSHOT_SKIPPED
    step: Count
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(AttemptRecord):
    """The attempt continues from the snapshot of ``step``."""

    type = RecordType.RESUMED
    step: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExited(AttemptRecord):
    type = RecordType.RANK_EXITED
    rank: Number
    exit_code: int | None = None
    signal: str | None = None  # "SIGKILL"
    killed: bool = False  # by the keeper


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded(AttemptRecord):
    """Steps are as the ranks reported them; None where they reported none."""

    type = RecordType.ATTEMPT_ENDED
    outcome: Outcome | None
    resumed_from_step: int | None = None
    last_step: int | None = None
    snapshot_step: int | None = None
    saving_seconds: float | None = None
    progressed: bool = False  # committed a later step than it started from


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler(AttemptRecord):
    type = RecordType.STRAGGLER
    rank: Number
    share: float | None  # of the time that the others wait for it; None once they no longer do


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInjected(AttemptRecord):
    """On a user's request. ``snapshot``: the step of the damaged one."""

    type = RecordType.FAULT_INJECTED
    fault: Fault
    rank: Number | None = None
    snapshot: Count | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecided(AttemptRecord):
    type = RecordType.RETRY_DECIDED
    reason: str
    next_try_at: float  # seconds since the epoch
    delay: float = 0.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded(Record):
    """The run has ended; ``state`` is QUEUED for a drained one."""

    type = RecordType.JOB_ENDED
    run: Number
    state: JobState
    reason: str
    outcome: Outcome | None = None

    def __post_init__(self) -> None:
        if self.state not in TERMINAL | {JobState.QUEUED}:
            raise ValueError(f"state: a run ends as succeeded, failed, cancelled or queued, not as {self.state}")


_RECORDS: dict[str, type[Record]] = {
    record.type: record
    for record in (
        KeeperStarted, RolledBack, AttemptStarted, RanksRunning, SnapshotSkipped, Resumed, RankExited, AttemptEnded,
        Straggler, FaultInjected, RetryDecided, JobEnded,
    )
}  # fmt: skip


class Journal:
    """Writer's end; only the live keeper holds one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, record_type: RecordType, *, at: float | None = None, **fields: Any) -> None:
        """``at``: when it happened, in seconds since the epoch; now, by default. Raises OSError on a full disk."""
        append_line(self._path, {"type": record_type, "at": time.time() if at is None else at, **fields})


def read_journal(path: Path, offset: int = 0) -> Iterator[Record]:
    """Every complete record from byte ``offset`` on.

    Lines that a crash tore and types that only a newer version has are skipped.
    """
    for end, line in read_lines(path, offset):
        record = _RECORDS.get(str(with_current_names(line).get("type")))
        if record is not None:
            try:
                yield structure(record, {**line, "end": end})
            except ValueError as error:
                yield Malformed(at=0.0, end=end, kind=record.type, problem=str(error))
