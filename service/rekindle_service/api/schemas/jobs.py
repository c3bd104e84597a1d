"""JSON of jobs, their attempts, timeline, snapshots and code."""

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, Field

from rekindle.contract.states import JobState
from rekindle_service.api.pagination import Page
from rekindle_service.api.schemas.common import JsonObject, ResponseModel, Timestamp, Utf8Str
from rekindle_service.api.schemas.requests import JobOptions, NodeRange, RankRange, SlurmRequest
from rekindle_service.jobs.time_breakdown import Interval, TimeCategory
from rekindle_service.run_readers.snapshots import SnapshotInfo


class Target(BaseModel):
    """What torchrun runs: a script, a module or a recipe."""

    kind: str
    value: str


class CheckpointPublic(BaseModel):
    """A checkpoint that the script itself wrote, or that was there before it.

    `path` is relative to the working directory where it is in it. `attempt`: the one that wrote it last, 0 if none did.
    `complete`: false while it is being written, and where that was interrupted. `loaded`: the latest attempt that
    loaded it.
    """

    path: Utf8Str
    kind: Utf8Str
    bytes: int
    written_at: Timestamp
    attempt: int
    complete: bool
    loaded: int | None


class SlurmPublic(SlurmRequest):
    """What was requested of Slurm, and what it says of the job's latest Slurm job.

    `job_id` is null before Slurm has taken it. `state` is Slurm's own word, or UNKNOWN where Slurm does not answer;
    `reason` says in plain words what it waits for or how it ended. `hosts` are the nodes that Slurm gave to it.
    """

    job_id: int | None = None
    state: Utf8Str | None = None
    reason: Utf8Str | None = None
    hosts: list[Utf8Str] = Field(default_factory=list)


class JobPublic(JobOptions):
    """A job and its current state. Values of `env` are hidden, since any of them may be a secret.

    `checkpoints`: the script's own, latest first, as far as they are learned. `estimated_step` and `estimated_epoch`
    are guesses from what a script prints that reports no step. `goodput` is null where it is not known.
    `estimated_start_at` is null where how long the jobs before it run is not known. `displaced` says for what a running
    job is being stopped or given other slots: `kind` (preempt, resize or device), `by` (id of the job that gets its
    slots, or null), `reason` (a sentence), `at` and `before` (its slots then). `preemptions` counts how often it went
    back to the queue for that. `reason` says in one line why the job is where it is: what it waits for, or how it
    ended; "" where its state says it all. `archived_at` and `seen_at` are null unless a person has put a job that has
    ended into the archive, or looked at how it ended.
    """

    env: dict[str, str | dict[str, str]]  # type: ignore[assignment]  # hidden values, and references as requested
    id: str
    number: int
    name: str
    owner: str | None
    state: str
    phase: Utf8Str | None
    intent: str
    attempt: int
    world_size: int | None
    ranks: RankRange
    nodes: NodeRange
    slurm: SlurmPublic | None
    devices: list[str]
    epoch: int | None
    epochs: int | None
    step: int | None
    steps: int | None
    progress: float | None
    eta_seconds: float | None
    steps_per_second: float | None
    restarts: int
    outcome: JsonObject | None
    next_try_at: Timestamp | None
    queue_position: int | None
    waiting_for: str | None
    reason: Utf8Str
    estimated_start_at: Timestamp | None
    displaced: JsonObject | None
    preemptions: int
    target: Target
    code: dict[str, str]
    snapshot_step: int | None
    checkpoints: list[CheckpointPublic]
    estimated_step: int | None
    estimated_epoch: int | None
    notice: Utf8Str | None
    created_at: Timestamp
    started_at: Timestamp | None
    ended_at: Timestamp | None
    archived_at: Timestamp | None
    seen_at: Timestamp | None
    tags: list[str]
    note: str
    goodput: float | None
    version: int
    python: str
    warnings: list[Utf8Str]
    experiment_id: str | None


class SlotCount(BaseModel):
    """Slots of this machine that jobs hold, and all slots."""

    held: int
    total: int


class QueueStats(BaseModel):
    """Statistics of all jobs. Their goodput is a mean, weighted by the duration and the world size of each job."""

    jobs: dict[JobState, int] = Field(description="Jobs by state", examples=[{"queued": 3, "running": 1}])
    slots: SlotCount
    goodput: float | None = Field(description="0 to 1; null before the first job has run")


class FaultPublic(BaseModel):
    """A fault that was injected on request; `snapshot` is the step of the snapshot that it damaged."""

    at: Timestamp
    fault: Utf8Str | None
    rank: int | None
    snapshot: int | None


class AttemptPublic(ResponseModel):
    """One launch of torchrun.

    `replayed_steps`: how many of its steps were lost, so that later attempts repeat them; null where not known (yet).
    `resumed_from_path`: the checkpoint that the script loaded by itself.
    `args`: the arguments of the script, where placeholders or `on_restart` make them differ from those of the job.
    """

    number: int
    state: Literal["running", "ended"]
    started_at: Timestamp
    ranks_running_at: Timestamp | None
    ended_at: Timestamp | None
    outcome: JsonObject | None
    resumed_from_step: int | None
    resumed_from_path: Utf8Str | None
    last_step: int | None
    snapshot_step: int | None
    replayed_steps: int | None
    world_size: int | None
    devices: list[str]
    next_try_at: Timestamp | None
    reason: Utf8Str | None
    args: list[Utf8Str] | None
    faults: list[FaultPublic]


@dataclass(frozen=True, slots=True)
class IntervalPublic(Interval):
    """A span of a job's time; `attempt` is null between attempts."""

    started_at: Timestamp


class TimeBreakdown(BaseModel):
    """Seconds by category; `goodput` is the share of training in all time but `queued`, null before there is any.

    It is null, too, where a script that reports no steps was restarted: how much it repeated is not known.

    The intervals follow each other without gaps from submission to the end, or to now. Within an attempt training
    comes first, then all saving, then what was replayed later: they show how long each took, not when.
    """

    goodput: float | None
    seconds: dict[TimeCategory, float]
    intervals: list[IntervalPublic]


class EventPublic(ResponseModel):
    """One event in the history of a job."""

    id: int
    at: Timestamp
    kind: str
    from_state: str | None
    to_state: str | None
    reason: Utf8Str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPublic(SnapshotInfo):
    """A committed snapshot.

    `verified`: every file of its manifest exists with the right size. `score`: the value that the metric
    `snapshot.monitor` of the job had at this step. `pinned`: never deleted to free space.
    """

    created_at: Timestamp
    pinned: bool = False


class SnapshotList(Page[SnapshotPublic]):
    """Page of snapshots; `policy` describes when they are taken, as of the latest attempt, null before the first."""

    policy: Utf8Str | None


class CodePublic(BaseModel):
    """The code of a job as it was submitted. Equal digests mean equal files."""

    digest: str
    files: int
    bytes: int


class ConfigurationPublic(BaseModel):
    """What a job runs with; null is what was not recorded.

    `directory`: working directory of the script, on the server's machine. `environment`: host, system, processor,
    cores, memory (bytes), Python and packages, as recorded by the keeper.
    """

    directory: Utf8Str
    code: CodePublic | None
    environment: JsonObject | None


class FileDifferencePublic(ResponseModel):
    """A file that differs; `diff` has the changed lines in unified format, null where they are not available."""

    path: Utf8Str
    change: Literal["added", "removed", "changed"]
    diff: str | None


class Bundle(BaseModel):
    """An uploaded code archive; `id` goes into `code.bundle` of a job."""

    id: str = Field(pattern="^sha256:[0-9a-f]{64}$", examples=["sha256:" + "0" * 64])
    bytes: int = Field(description="Size of the archive")


class ChaosPublic(BaseModel):
    """A fault that was sent to the keeper; `rank` is its target, null for a fault that targets no single rank."""

    attempt: int
    fault: str
    rank: int | None


class Hello(BaseModel):
    """First event of the stream; `version` is the version from which changes are reported."""

    version: int
    server_started_at: Timestamp
