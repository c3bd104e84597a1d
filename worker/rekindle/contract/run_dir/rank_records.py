"""What a rank writes about itself into its directory."""

import signal
from dataclasses import dataclass, field
from enum import StrEnum

from rekindle.contract.run_dir.json_records import Count, JsonRecord, Line

STACK_SIGNAL = signal.SIGRTMIN + 7
"""Makes a rank append the stacks of all its threads to ``RankDir.stacks``, even where C code blocks or holds the GIL.

A real-time signal, since scripts, Slurm and Lightning use SIGUSR1 and SIGUSR2 themselves.
"""

DEBUGGER_PHASE = "debugger"
"""Phase of a rank that is stopped in the debugger of a replay, for as long as a person likes: it is no hang."""


class RankState(StrEnum):
    """Where a rank is; how it ended, if badly, is in ``RankError`` or the keeper's journal."""

    STARTING = "starting"  # the wrapper runs, the script does not yet
    RUNNING = "running"  # the script runs
    DONE = "done"  # the script ended as it should
    DRAINED = "drained"  # the script saved and stopped because it was asked to
    FAILED = "failed"  # the script failed, or the process has ended without a record
    KILLED = "killed"  # ended by the keeper after another rank had failed, or on request


@dataclass(slots=True)
class RankStatus(JsonRecord):
    """Content of ``status.json``. The wrapper writes the first block, ``rekindle.report`` the second."""

    rank: int
    local_rank: int
    world_size: int
    host: Line
    pid: int
    start_time: int
    device: Line
    state: RankState

    phase: Line | None = None  # "restore", "train", "evaluate", "snapshot" … as the script reports
    epoch: int | None = None  # finished ones, as steps are counted
    epochs: int | None = None
    step: int | None = None
    steps: int | None = None  # expected total
    steps_per_second: float | None = None
    reported_steps: int = 0  # times that the step has changed in this attempt
    resumed_from_step: int | None = None
    snapshot_step: int | None = None  # latest snapshot committed by this attempt
    memory_step: int | None = None  # latest copy in shared memory, from which an attempt on this machine can resume
    snapshot_policy: Line | None = None  # of rank 0: "every 42 steps (auto: …)"
    saving_seconds: float | None = None  # during which the training stood still for snapshots in this attempt
    suspect_step: Count | None = None  # latest step with a loss or weights that look wrong
    notice: Line | None = None  # something the user should see, such as "snapshot 40 skipped: checksum"
    completed: bool = False  # the training of ``rekindle.Run`` has reached its end, and its result is stored
    updated_at: float = 0.0  # seconds since the epoch, for people


@dataclass(frozen=True, slots=True)
class RankDone(JsonRecord):
    """Content of ``done.json``: the script ended as it should."""

    rank: int
    drained: bool  # stopped on request after a snapshot, not finished
    step: int | None
    at: float  # seconds since the epoch
    completed: bool = False  # by ``rekindle.Run``; exit code 0 alone is no proof of it once SIGTERM was sent
    file: str | None = None  # where the script called ``sys.exit``, if it did
    line: int | None = None


@dataclass(frozen=True, slots=True)
class RankError(JsonRecord):
    """Content of ``error.json``: the exception that ended the script; ``file`` and ``line`` are in user code."""

    rank: int
    exception: Line
    message: str
    file: str | None
    line: int | None
    traceback: str
    exit_code: int | None  # of ``sys.exit(n)``; None for other exceptions
    at: float  # seconds since the epoch
    at_monotonic: float  # seconds, comparable between the ranks of one machine
    context: "RankError | None" = None  # that was being handled when this one was raised; without its traceback


@dataclass(frozen=True, slots=True)
class MetricPoint(JsonRecord):
    """One line of ``metrics.jsonl``; a value that is not finite is None, since JSON has no NaN."""

    step: int
    epoch: int | None
    at: float  # seconds since the epoch
    values: dict[str, float | None] = field(default_factory=dict)
