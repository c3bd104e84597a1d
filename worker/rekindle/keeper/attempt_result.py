"""What is known about one attempt after it has ended: the input of the diagnosis."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rekindle.contract.processes import ProcessIdentity, boot_id
from rekindle.contract.run_dir.rank_records import RankError


class Ending(StrEnum):
    """Why the keeper stopped watching an attempt."""

    DONE = "done"  # every rank left its done marker
    RANK_FAILED = "rank_failed"  # a rank ended, or reported its failure, without being done
    HANG = "hang"  # no rank made progress for too long
    LAUNCH_STALLED = "launch_stalled"  # ranks had not started after a long time
    AGENT_ENDED = "agent_ended"  # torchrun ended with ranks not done
    DRAIN = "drain"  # asked to save and stop: the job continues later
    CANCEL = "cancel"  # asked to stop for good
    TIME_LIMIT = "time_limit"  # the job's own limit
    KEEPER_LOST = "keeper_lost"  # nobody observed the end


@dataclass(slots=True)
class RankResult:
    """One rank and its end, as observed from outside and as reported by itself."""

    rank: int
    local_rank: int
    pid: int
    start_time: int
    ended_at: float | None = None  # seconds of CLOCK_MONOTONIC
    exit_code: int | None = None
    signal: int | None = None
    killed: bool = False  # by the keeper, so its end is no evidence
    stopped_by_torchrun: bool = False  # which stops the others when one has failed
    oom: str | None = None  # why its SIGKILL is attributed to the kernel's out-of-memory killer
    done: bool = False
    drained: bool = False
    error: RankError | None = None

    @property
    def identity(self) -> ProcessIdentity:
        return ProcessIdentity(self.pid, self.start_time, boot_id())

    @property
    def explained(self) -> bool:
        """True once it is known how the process ended."""
        return self.exit_code is not None or self.signal is not None

    @property
    def failed(self) -> bool:
        """True for a rank that ended, or reported its failure, without being done or killed by the keeper."""
        return not self.done and (self.error is not None or (self.ended_at is not None and not self.killed))

    @property
    def failed_at(self) -> float:
        """In seconds of CLOCK_MONOTONIC: by its own report where it left one, since a process takes time to die."""
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


@dataclass(frozen=True, slots=True)
class Hang:
    """Ranks that made no progress for ``seconds``."""

    seconds: float
    culprit: Culprit
    evidence: dict[str, Any]


@dataclass(slots=True)
class AttemptResult:
    """One attempt's end. ``agent_signal`` is set only where somebody else than the keeper killed torchrun."""

    attempt: int
    world_size: int
    ending: Ending
    ranks: dict[int, RankResult] = field(default_factory=dict)
    agent_exit_code: int | None = None
    agent_signal: int | None = None
    agent_log_tail: str = ""
    hang: Hang | None = None
    survivors: list[int] = field(default_factory=list)  # pids that SIGKILL did not end
    disk_full: bool = False  # when it ended: a rank's report may be missing
    gpu_memory_held: int = 0  # bytes that were not released when its processes had gone
    resumed_from_step: int | None = None
    last_step: int | None = None
    snapshot_step: int | None = None
    memory_step: int | None = None
    saving_seconds: float | None = None  # that training waited for snapshots
    files_changed: bool = False  # in the snapshot directory, or weights in the working directory

    @property
    def drained(self) -> bool:
        return any(rank.drained for rank in self.ranks.values())

    @property
    def progressed(self) -> bool:
        """A later step was committed than the attempt started from; where none is reported, files changed."""
        committed = [step for step in (self.snapshot_step, self.memory_step) if step is not None]
        return max(committed) > (self.resumed_from_step or 0) if committed else self.files_changed
