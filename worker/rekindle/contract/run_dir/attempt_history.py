"""The one fold of the journal, for keeper, readers and rows: what happened to each attempt and each run of a job."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from rekindle.contract.outcome import Outcome, SavedProgress
from rekindle.contract.run_dir import journal
from rekindle.contract.run_dir.journal import AttemptRecord, Record

_MAX_STALLS = 200  # of one attempt


@dataclass(slots=True)
class AttemptSummary:
    """One launch of torchrun, as lists show it. Times are in seconds since the epoch; what is not known (yet) is None.

    Rows of the server have a column for each of these fields.
    """

    number: int
    run: int = 0
    started_at: float = 0.0
    world_size: int = 0
    devices: list[str] = field(default_factory=list)
    stalls: list[list[float]] = field(default_factory=list)  # from when to when it made no progress; the last may last
    ranks_running_at: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None
    resumed_from_step: int | None = None
    resumed_from_path: str | None = None  # checkpoint of the script's own that it has loaded
    last_step: int | None = None
    snapshot_step: int | None = None  # latest durable snapshot
    saving_seconds: float | None = None  # during which the training stood still for snapshots
    faults: list[journal.FaultInjected] = field(default_factory=list)
    reason: str | None = None  # why another attempt follows, or why none does
    next_try_at: float | None = None

    @property
    def is_stalled(self) -> bool:
        """True while the attempt makes no progress and has not ended."""
        return bool(self.stalls) and len(self.stalls[-1]) == 1

    def end_stall(self, at: float) -> None:
        """Note that the attempt makes progress again, or has ended; nothing changes where it was not stalled."""
        if self.is_stalled:
            self.stalls = [*self.stalls[:-1], [self.stalls[-1][0], at]]

    @property
    def is_resized(self) -> bool:
        """True where the attempt was stopped so that the next one has other devices."""
        return self.outcome is not None and self.outcome.is_resize


@dataclass(slots=True)
class AttemptInfo(AttemptSummary):
    """One launch of torchrun: all that the journal says of it."""

    boot_id: str | None = None  # of the machine, when the attempt started
    hosts: list[str] = field(default_factory=list)  # of a job on a cluster, in the order of its nodes
    processes: dict[int, journal.RankProcess] = field(default_factory=dict)  # by rank, as the next two
    exits: dict[int, journal.RankExited] = field(default_factory=dict)
    stragglers: dict[int, float] = field(default_factory=dict)  # share of the time that others wait for the rank
    progress: SavedProgress = SavedProgress.UNKNOWN
    running_seconds: float = 0.0  # that all ranks ran, without the time of a hang
    loaded: bool | None = None  # a checkpoint of an earlier attempt; None: not known
    stop_requested: str | None = None  # "drain", "cancel", "time_limit", "shutdown", "resize", "grow"

    @property
    def ended_by(self) -> Outcome:
        """How it ended. Raises ValueError for an attempt of which that is not known."""
        if self.outcome is None:
            raise ValueError(f"attempt {self.number} has no outcome")
        return self.outcome


@dataclass(slots=True)
class RunInfo:
    """One run, from leaving the queue to the end or the return to the queue: a resume by the user begins the next."""

    started_at: float | None = None  # of its first attempt, in seconds since the epoch
    ended: list[AttemptInfo] = field(default_factory=list)  # attempts whose end was recorded during this run
    end: journal.JobEnded | None = None


class AttemptHistory:
    """Apply records in the order of the journal. No record can make it fail."""

    def __init__(
        self,
        attempts: Iterable[AttemptInfo] = (),
        *,
        run: int | None = None,
        launch: int = 0,
        boot_id: str | None = None,
    ) -> None:
        """Continue from records before these: ``attempts``, and the ``last_keeper`` of their history."""
        self.attempts = {attempt.number: attempt for attempt in attempts}
        self.runs: defaultdict[int, RunInfo] = defaultdict(RunInfo)
        self._run = run
        self.launch = launch  # the highest that has a record: keepers of a lower one may still write, and mean nothing
        self.boot_id = boot_id  # of the machine of the latest keeper

    @classmethod
    def read(cls, path: Path) -> Self:
        """The history of a journal."""
        history = cls()
        for record in journal.read_journal(path):
            history.apply(record)
        return history

    @property
    def last_keeper(self) -> dict[str, Any]:
        """What the records say of keepers, as JSON: with ``attempts`` all that a history continues from."""
        return {"run": self._run, "launch": self.launch, "boot_id": self.boot_id}

    @property
    def latest(self) -> AttemptInfo | None:
        return self.attempts[max(self.attempts)] if self.attempts else None

    @property
    def restarts(self) -> int:
        """Number of attempts that followed a failure."""
        numbered = [self.attempts[number] for number in sorted(self.attempts)]
        return sum(later.run == before.run and not before.is_resized for before, later in pairwise(numbered))

    def attempt(self, number: int, started_at: float) -> AttemptInfo:
        """The attempt of this number; one without a record of its start began at ``started_at``."""
        if number not in self.attempts:
            self.attempts[number] = AttemptInfo(number, self._run or 0, started_at, boot_id=self.boot_id)
        return self.attempts[number]

    def is_superseded(self, record: Record) -> bool:
        """True for a record by keepers of an earlier launch: a machine that was cut off may still run them."""
        return record.launch is not None and record.launch < self.launch

    def apply(self, record: Record) -> None:
        if self.is_superseded(record):
            return
        self.launch = max(self.launch, record.launch or 0)
        match record:
            case journal.KeeperStarted():
                self._run, self.boot_id = record.run, record.keeper.boot_id
                self.runs[record.run].end = None
            case journal.JobEnded():
                self.runs[record.run].end = record
                if self.latest is not None:
                    self.latest.reason = self.latest.reason or record.reason
            case AttemptRecord():
                self._apply_to(self.attempt(record.attempt, record.at), record)

    def _apply_to(self, attempt: AttemptInfo, record: AttemptRecord) -> None:  # noqa: C901  # a table of records
        match record:
            case journal.AttemptStarted():
                attempt.run, attempt.world_size = record.run, record.world_size
                attempt.devices, attempt.hosts = record.devices, record.hosts
                run = self.runs[record.run]
                run.started_at = record.at if run.started_at is None else run.started_at
            case journal.RanksRunning():
                attempt.processes = {process.rank: process for process in record.ranks}
                attempt.ranks_running_at = record.at
            case journal.Resumed():
                attempt.resumed_from_step = record.step
            case journal.CheckpointLoaded():
                attempt.resumed_from_path = record.path
            case journal.StopRequested():
                attempt.stop_requested = record.ending
            case journal.RankExited():
                attempt.exits[record.rank] = record
            case journal.Straggler():
                self._mark_straggler(attempt, record)
            case journal.AttemptStalled():
                self._mark_stall(attempt, record)
            case journal.FaultInjected():
                attempt.faults = [*attempt.faults, record]
            case journal.RetryDecided():
                attempt.reason, attempt.next_try_at = record.reason, record.next_try_at
            case journal.AttemptEnded():
                self._end(attempt, record)

    def _mark_straggler(self, attempt: AttemptInfo, record: journal.Straggler) -> None:
        if record.share is None:
            attempt.stragglers.pop(record.rank, None)
        else:
            attempt.stragglers[record.rank] = record.share

    def _mark_stall(self, attempt: AttemptInfo, record: journal.AttemptStalled) -> None:
        if record.sentence is None:
            attempt.end_stall(record.at)
        elif not attempt.is_stalled and record.since is not None and len(attempt.stalls) < _MAX_STALLS:
            attempt.stalls = [*attempt.stalls, [record.since]]

    def _end(self, attempt: AttemptInfo, record: journal.AttemptEnded) -> None:
        attempt.end_stall(record.at)
        attempt.ended_at, attempt.outcome, attempt.loaded = record.at, record.outcome, record.loaded
        attempt.progress = record.progress
        ran = 0.0 if attempt.ranks_running_at is None else max(record.at - attempt.ranks_running_at, 0.0)
        attempt.running_seconds = ran if record.running_seconds is None else record.running_seconds
        attempt.last_step, attempt.snapshot_step = record.last_step, record.snapshot_step
        attempt.saving_seconds = record.saving_seconds
        if record.resumed_from_step is not None:
            attempt.resumed_from_step = record.resumed_from_step
        self.runs[attempt.run if self._run is None else self._run].ended.append(attempt)


def replayed_steps(attempts: Sequence[AttemptSummary]) -> dict[int, int | None]:
    """How many of the steps that each attempt had finished were lost, so that later attempts had to repeat them.

    By number of the attempt; ``attempts`` ascend by number and are all of the job's. Replayed are the steps beyond the
    earliest one (0 without a snapshot) that any later attempt began from, the next or one after a rollback. A step that
    was lost twice counts once for each attempt that had finished it.

    None where it is not known: the attempt still runs or its script reports no steps, or no later attempt has reported
    yet where it began; nothing is guessed from the latest snapshot, since a copy in memory may be newer. 0 for the last
    attempt of a run, and where all later ones ended before they restored anything.
    """
    replayed: dict[int, int | None] = {}
    earliest: int | None = None  # step that a later attempt began from
    restoring = bool(attempts) and attempts[-1].next_try_at is not None  # a later attempt has an unknown beginning
    for attempt in reversed(attempts):
        first, last = attempt.resumed_from_step, attempt.last_step
        if last is None or (earliest is None and restoring):
            replayed[attempt.number] = None
        else:
            replayed[attempt.number] = 0 if earliest is None else max(0, last - max(earliest, first or 0))
        if first is not None or last is not None:
            earliest = min(first or 0, first or 0 if earliest is None else earliest)
        elif attempt.ended_at is None:
            restoring = True
    return dict(reversed(replayed.items()))
