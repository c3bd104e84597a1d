"""What is known about one attempt after it has ended: the input of the diagnosis."""

from dataclasses import dataclass, field
from enum import StrEnum

from rekindle.contract.processes import ProcessIdentity, boot_id
from rekindle.contract.run_dir.rank_records import RankError
from rekindle.keeper.accusation import Hang


class Ending(StrEnum):
    """Why the keeper stopped watching an attempt."""

    DONE = "done"  # every rank left its done marker
    RANK_FAILED = "rank_failed"  # a rank ended, or said that it fails, without being done
    HANG = "hang"  # nothing moved for too long
    LAUNCH_STALLED = "launch_stalled"  # ranks had not started after a long time
    AGENT_ENDED = "agent_ended"  # torchrun ended with ranks not done
    DRAIN = "drain"  # asked to save and stop: the job goes on later
    CANCEL = "cancel"  # asked to stop for good
    TIME_LIMIT = "time_limit"  # the job's own limit
    KEEPER_LOST = "keeper_lost"  # nobody saw the end


@dataclass(slots=True)
class RankFacts:
    """One rank's end, as seen from outside and as told by itself."""

    rank: int
    local_rank: int
    pid: int
    start_time: int
    ended_at: float | None = None  # seconds of CLOCK_MONOTONIC
    exit_code: int | None = None
    signal: int | None = None
    killed: bool = False  # by the keeper, so its end tells nothing
    stopped_by_torchrun: bool = False  # which stops the others when one has failed
    oom: str | None = None  # why its SIGKILL is put down to the kernel's out-of-memory killer
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
        """True for a rank that ended, or said that it fails, without being done and without our doing."""
        return not self.done and (self.error is not None or (self.ended_at is not None and not self.killed))

    @property
    def failed_at(self) -> float:
        """When it went wrong: its own word where it left one, since dying takes time (seconds of CLOCK_MONOTONIC)."""
        if self.error is not None:
            return self.error.at_monotonic
        return float("inf") if self.ended_at is None else self.ended_at


@dataclass(slots=True)
class AttemptFacts:
    """One attempt's end. ``agent_signal`` is set only where somebody else than the keeper killed torchrun."""

    attempt: int
    world_size: int
    ending: Ending
    ranks: dict[int, RankFacts] = field(default_factory=dict)
    agent_exit_code: int | None = None
    agent_signal: int | None = None
    agent_log_tail: str = ""
    hang: Hang | None = None
    survivors: list[int] = field(default_factory=list)  # pids that SIGKILL did not end
    disk_full: bool = False  # when it ended: what a rank wanted to say may be missing
    gpu_memory_held: int = 0  # bytes that did not come back when its processes had gone
    resumed_from_step: int | None = None
    last_step: int | None = None
    snapshot_step: int | None = None
    memory_step: int | None = None
    saving_seconds: float | None = None  # that the training stood still for snapshots
    files_changed: bool = False  # something new lies in the snapshot directory

    @property
    def drained(self) -> bool:
        return bool(self.ranks) and any(rank.drained for rank in self.ranks.values())

    @property
    def progressed(self) -> bool:
        """A later step was committed than the attempt started from; where none is reported, files changed."""
        kept = max(self.snapshot_step or 0, self.memory_step or 0)
        if self.snapshot_step is not None or self.memory_step is not None:
            return kept > (self.resumed_from_step or 0)
        return self.files_changed
