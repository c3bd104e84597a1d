"""What is known about one attempt after it has ended, by its files too: the input of the diagnosis."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from rekindle.contract.job_options import LaunchMode
from rekindle.contract.outcome import SavedProgress
from rekindle.contract.processes import ProcessIdentity, boot_id
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import AttemptDir, RankDir, RunDir
from rekindle.contract.run_dir.rank_records import RankDone, RankError, RankStatus
from rekindle.contract.safe_open import read_end

N = TypeVar("N", int, float)

_MAX_TAIL = 256 << 10  # bytes in which torchrun may report on each of many ranks


class Ending(StrEnum):
    """Why the keeper stopped watching an attempt."""

    DONE = "done"  # every rank has finished
    RANK_FAILED = "rank_failed"  # a rank ended, or reported its failure, without being done
    HANG = "hang"  # no rank made progress for too long
    LAUNCH_STALLED = "launch_stalled"  # ranks had not started after a long time
    AGENT_ENDED = "agent_ended"  # torchrun ended with ranks not done
    DRAIN = "drain"  # asked to save and stop: the job continues later
    CANCEL = "cancel"  # asked to stop for good
    TIME_LIMIT = "time_limit"  # the job's own limit
    RESIZE = "resize"  # the job gets other devices, and loses some of those that it has
    GROW = "grow"  # it gets more devices, which can wait until the stop loses nothing
    SHUTDOWN = "shutdown"  # the keeper got SIGTERM, as every process does when the machine shuts down
    KEEPER_LOST = "keeper_lost"  # nobody observed the end
    HOST_LOST = "host_lost"  # a node of the cluster ended, or was cut off

    @property
    def is_stop(self) -> bool:
        """True for an ending on request: the ranks get SIGTERM, and time to save."""
        return self in _STOPS


_STOPS = {Ending.DRAIN, Ending.CANCEL, Ending.TIME_LIMIT, Ending.SHUTDOWN, Ending.RESIZE, Ending.GROW}


@dataclass(frozen=True, slots=True)
class Crash:
    """What faulthandler wrote when a rank crashed, and the innermost line of the user's own code, if any."""

    stack: str
    file: str | None = None
    line: int | None = None


@dataclass(slots=True)
class RankResult:
    """One rank and its end, as observed from outside and as reported by itself."""

    rank: int
    pid: int
    start_time: int
    ended_at: float | None = None  # seconds of CLOCK_MONOTONIC
    exit_code: int | None = None
    signal: int | None = None
    killed: bool = False  # by the keeper, so its end is no evidence
    stopped_by_torchrun: bool = False  # which stops the others when one has failed
    signal_reason: str | None = None  # why the kernel sent its SIGKILL, as a clause, where the agent knows that
    oom: str | None = None  # why its SIGKILL is attributed to the kernel's out-of-memory killer
    done: bool = False
    drained: bool = False
    completed: bool = False  # the training reached its end
    error: RankError | None = None
    crash: Crash | None = None
    watchdog: str | None = None  # of NCCL, which has ended this rank: what it wrote

    @property
    def identity(self) -> ProcessIdentity:
        return ProcessIdentity(self.pid, self.start_time, boot_id())

    @property
    def explained(self) -> bool:
        """True once it is known how the process ended."""
        return self.exit_code is not None or self.signal is not None

    @property
    def finished(self) -> bool:
        """True for a rank that is done, and for one whose process ended with exit code 0 in another way.

        Scripts do so by ``os._exit(0)``, as in order to skip exit functions that hang, or replace themselves by
        another program.
        """
        return self.done or (self.exit_code == 0 and self.error is None and not self.killed)

    @property
    def failed(self) -> bool:
        """True for a rank that ended, or reported its failure, without having finished or being killed by the keeper.

        How a rank ended may become known a moment after its end.
        """
        return not self.finished and (self.error is not None or (self.ended_at is not None and not self.killed))

    @property
    def failed_at(self) -> float:
        """Seconds of CLOCK_MONOTONIC, by its own report where it left one, since a process takes time to die."""
        if self.error is not None:
            return self.error.at_monotonic
        return float("inf") if self.ended_at is None else self.ended_at


@dataclass(frozen=True, slots=True)
class Culprit:
    """Which rank caused a hang, and where. ``rank`` is None where all wait for each other and none stands out."""

    rank: int | None
    description: str
    file: str | None = None  # of the innermost line of the user's own code
    line: int | None = None
    may_end: bool = False  # what the rank does: nothing shows that it waits for another rank or loops without end
    is_certain: bool = False  # all ranks wait in collectives that can never complete


@dataclass(frozen=True, slots=True)
class Hang:
    """A lack of progress of all ranks for ``seconds``."""

    seconds: float
    culprit: Culprit
    evidence: dict[str, Any]

    @property
    def may_end(self) -> bool:
        """True where it may end by itself: more time may be all it needs, unless the user has set a limit."""
        return bool(self.evidence.get("may_end"))


@dataclass(frozen=True, slots=True)
class Stall:
    """A lack of progress that is shown; times are in seconds since the epoch."""

    since: float
    hung_at: float  # when it counts as a hang
    culprit: Culprit

    def fields(self) -> dict[str, Any]:
        """Return the fields of its record in the journal."""
        who = self.culprit
        return {"sentence": who.description, "rank": who.rank, "since": self.since, "hung_at": self.hung_at}


@dataclass(slots=True)
class AttemptResult:
    """One attempt's end. ``agent_signal`` is set only where somebody else than the keeper killed torchrun."""

    attempt: int
    world_size: int
    ending: Ending
    stop_reason: str | None = None  # for what the server has requested a stop, as a sentence
    launch: LaunchMode = LaunchMode.TORCHRUN
    ranks: dict[int, RankResult] = field(default_factory=dict)
    agent_exit_code: int | None = None
    agent_signal: int | None = None
    agent_log_tail: str = ""
    hosts: list[str] = field(default_factory=list)  # of a job on a cluster, in the order of its nodes
    lost_nodes: dict[str, str] = field(default_factory=dict)  # by host, how that was noticed
    start_error: str | None = None  # why no rank could be started
    start_is_retryable: bool = True
    hang: Hang | None = None
    missing_peer: Culprit | None = None  # that left, as ranks that lost their connections have noticed
    kernel_log: list[str] = field(default_factory=list)  # what NVIDIA's driver has written there meanwhile
    gpus: list[str] = field(default_factory=list)  # of all ranks in their order, as in CUDA_VISIBLE_DEVICES
    survivors: list[int] = field(default_factory=list)  # pids that SIGKILL did not end
    disk_full: bool = False  # when it ended: a rank's report may be missing
    gpu_memory_held: int = 0  # bytes that were not released when its processes had gone
    resumed_from_step: int | None = None
    last_step: int | None = None
    snapshot_step: int | None = None
    memory_step: int | None = None
    saving_seconds: float | None = None  # that training waited for snapshots
    commits_snapshots: bool = False  # ``rekindle.Run`` does, so that it is known whether one was committed
    own_checkpoint_saved: bool | None = None  # by the script's own means; None: cannot be known
    own_checkpoint_loaded: bool | None = None  # one of an earlier attempt; None: cannot be known
    running_seconds: float = 0.0  # that all ranks ran, without the time of a hang

    @property
    def drained(self) -> bool:
        return any(rank.drained for rank in self.ranks.values())

    @property
    def unsaved_step(self) -> int | None:
        """The last step of a ``Run`` whose snapshot of it was not stored."""
        if not self.commits_snapshots or self.last_step is None or (self.snapshot_step or 0) >= self.last_step:
            return None
        return self.last_step

    @property
    def exited_incomplete(self) -> bool:
        """True where every rank exited with code 0, and one left no marker of its ``Run`` that training is complete."""
        ranks = self.ranks.values()
        exited = len(ranks) == self.world_size and all(rank.finished and not rank.drained for rank in ranks)
        return exited and not all(rank.completed for rank in ranks)

    @property
    def progress(self) -> SavedProgress:
        """Progress by the steps that were committed; where the script saves by itself, by its checkpoints."""
        committed = [step for step in (self.snapshot_step, self.memory_step) if step is not None]
        saved = self.own_checkpoint_saved
        if committed or self.commits_snapshots:
            saved = max(committed, default=0) > (self.resumed_from_step or 0)
        if saved is None:
            return SavedProgress.UNKNOWN
        return SavedProgress.KNOWN if saved else SavedProgress.NONE


def read_rank_result(rank_dir: RankDir, rank: int) -> RankResult | None:
    """A rank as its own files describe it, or None where it has not started."""
    status = read_record(rank_dir.status, RankStatus)
    if status is None:
        return None
    result = RankResult(rank, status.pid, status.start_time)
    read_markers(rank_dir, result)
    return result


def read_markers(rank_dir: RankDir, rank: RankResult) -> None:
    """Update ``rank`` by the done marker and the error that it may have written."""
    if (done := read_record(rank_dir.done, RankDone)) is not None:
        rank.done, rank.drained, rank.completed = True, done.drained, done.completed
    rank.error = read_record(rank_dir.error, RankError) or rank.error


def read_lost_attempt(run_dir: RunDir, number: int, world_size: int, stop: Ending | None = None) -> AttemptResult:
    """An attempt whose keeper died before it could write the end. Done markers of all ranks make it a success.

    ``stop``: the ending that was requested before, after which exit code 0 is no success.
    """
    attempt_dir = run_dir.attempt(number)
    ranks = {rank: RankResult(rank, pid=0, start_time=0) for rank in range(world_size)}
    for rank in ranks.values():
        read_markers(attempt_dir.rank(rank.rank), rank)
    ending = Ending.DONE if all(rank.done for rank in ranks.values()) else Ending.KEEPER_LOST
    result = AttemptResult(attempt=number, world_size=world_size, ending=ending, ranks=ranks)
    if stop is not None and result.exited_incomplete:
        result.ending = stop
    read_steps(result, attempt_dir, attempt_dir.rank_numbers())
    return result


def read_steps(result: AttemptResult, attempt_dir: AttemptDir, ranks: Iterable[int]) -> None:
    """Fill in how far ``ranks`` came, as they last reported."""
    found = (read_record(attempt_dir.rank(number).status, RankStatus) for number in ranks)
    statuses = [status for status in found if status is not None]
    result.resumed_from_step = _highest(status.resumed_from_step for status in statuses)
    result.last_step = _highest(status.step for status in statuses)
    result.snapshot_step = _highest(status.snapshot_step for status in statuses)
    result.memory_step = _highest(status.memory_step for status in statuses)
    result.commits_snapshots = any(status.snapshot_policy is not None for status in statuses)
    result.saving_seconds = _highest(status.saving_seconds for status in statuses)


def _highest(values: Iterable[N | None]) -> N | None:
    return max((value for value in values if value is not None), default=None)


def stopped_by_torchrun(agent_log: Path, pid: int) -> bool:
    """True where torchrun logged that it sent SIGTERM to ``pid``: nobody else would log that."""
    return bool(re.search(rf"process {pid} (via|closing) signal SIGTERM", read_end(agent_log, _MAX_TAIL)))
