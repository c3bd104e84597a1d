"""What a rank writes about itself into its directory."""

import signal
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from rekindle.contract.run_dir.json_records import structure

STACK_SIGNAL = signal.SIGRTMIN + 7
"""Makes a rank append the stacks of all its threads to ``RankDir.stacks``, even where C code blocks or holds the GIL.

A real-time signal, since scripts, Slurm and Lightning use SIGUSR1 and SIGUSR2 themselves.
"""


class RankState(StrEnum):
    """Where a rank is; how it ended, if badly, is in ``RankError`` or the keeper's journal."""

    STARTING = "starting"  # the wrapper runs, the script has not begun
    RUNNING = "running"  # the script runs
    DONE = "done"  # the script ended as it should
    DRAINED = "drained"  # the script saved and stopped because it was asked to
    FAILED = "failed"  # the script ended badly, or the process is gone without a word
    KILLED = "killed"  # ended by the keeper after another rank had failed, or on request


@dataclass(slots=True)
class RankStatus:
    """``status.json``. The wrapper fills the first block, ``rekindle.report`` the second.

    Times: ``updated_at`` in seconds since the epoch, for people; ``updated_monotonic`` in seconds of
    CLOCK_MONOTONIC, which all processes of one boot share, for arithmetic.
    """

    rank: int
    local_rank: int
    world_size: int
    host: str
    pid: int
    start_time: int
    device: str
    state: RankState
    started_monotonic: float

    phase: str | None = None  # "restore", "train", "evaluate", "snapshot" … as the script says
    epoch: int | None = None  # finished ones, as steps are counted
    epochs: int | None = None
    step: int | None = None
    steps: int | None = None  # expected total
    steps_per_second: float | None = None
    resumed_from_step: int | None = None
    snapshot_step: int | None = None  # newest snapshot committed by this attempt
    memory_step: int | None = None  # newest copy in shared memory, which a restart on this machine can go on from
    snapshot_policy: str | None = None  # of rank 0: "every 42 steps (auto: …)"
    saving_seconds: float | None = None  # that the training has stood still for snapshots in this attempt
    notice: str | None = None  # something the user should see, such as "snapshot 40 skipped: checksum"
    updated_at: float = 0.0
    updated_monotonic: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Raises ValueError where ``value`` is not what ``to_json`` makes."""
        return structure(cls, value)


@dataclass(frozen=True, slots=True)
class RankDone:
    """``done.json``."""

    rank: int
    drained: bool  # stopped on request after a snapshot, not finished
    step: int | None
    at: float  # seconds since the epoch

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RankError:
    """``error.json``: the exception that ended the script, its place being the innermost line of the user's code."""

    rank: int
    exception: str
    message: str
    file: str | None
    line: int | None
    traceback: str
    exit_code: int | None  # of ``sys.exit(n)``; None for other exceptions
    at: float  # seconds since the epoch
    at_monotonic: float  # seconds, comparable between the ranks of one machine

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Raises ValueError where ``value`` is not what ``to_json`` makes."""
        return structure(cls, value)


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One line of ``metrics.jsonl``; a value that is not finite is None, since JSON has no NaN."""

    step: int
    epoch: int | None
    at: float  # seconds since the epoch
    values: dict[str, float | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
