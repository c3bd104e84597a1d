"""JSON of the history of a job and of its files: attempts, faults, events, time, snapshots and code."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from rekindle_service.jobs.time_breakdown import Interval, TimeCategory
from rekindle_service.run_readers.stored_snapshots import SnapshotInfo
from rekindle_service.schemas.fields import ApiModel, JsonObject, OutcomeJson, Page, Timestamp, Utf8Str


class FaultPublic(ApiModel):
    """A fault that was injected on request."""

    at: Timestamp
    """When it was injected."""
    fault: Utf8Str | None
    """Kind of the fault, as in the request."""
    rank: int | None
    """Target rank; null for a fault that targets no single rank."""
    snapshot: int | None
    """Step of the snapshot that was damaged; null for other faults."""


class AttemptPublic(ApiModel):
    """One launch of torchrun."""

    number: int
    """Number of the attempt, from 1 over the whole life of the job."""
    state: Literal["running", "ended"]
    """Whether the attempt runs or has ended."""
    started_at: Timestamp
    """When torchrun was launched."""
    ranks_running_at: Timestamp | None
    """When all ranks had started the script; null before that."""
    ended_at: Timestamp | None
    """When the attempt ended; null while it runs."""
    outcome: OutcomeJson | None
    """How the attempt ended, with the same keys as `outcome` of a job; null while it runs."""
    start: Utf8Str
    """Why the attempt began at its step: which snapshot, copy in memory or checkpoint; "" where that is not known."""
    resumed_from_step: int | None
    """Step of the snapshot from which the attempt resumed; null where it started from the beginning."""
    resumed_from_path: Utf8Str | None
    """Checkpoint that the script loaded by itself; null where it loaded none."""
    last_step: int | None
    """Last completed step; null where the script reports no steps."""
    snapshot_step: int | None
    """Step of the latest snapshot that was committed by then; null where there was none."""
    replayed_steps: int | None
    """Number of its steps that were lost, so that later attempts repeat them; null where that is not known (yet)."""
    world_size: int
    """Number of ranks."""
    devices: list[str]
    """Slots of the attempt, in the order of the ranks."""
    next_try_at: Timestamp | None
    """When the attempt that follows starts, after the back-off; null where none follows."""
    reason: Utf8Str | None
    """Why another attempt follows, or why none does; null while it runs."""
    args: list[Utf8Str] | None
    """Arguments of the script, where placeholders or `on_restart` make them differ from those of the job; else null."""
    faults: list[FaultPublic]
    """Faults that were injected, in order."""


@dataclass(frozen=True, slots=True)
class IntervalPublic(Interval):
    """A span of a job's time."""

    started_at: Timestamp
    """When it began."""


class TimeBreakdown(ApiModel):
    """What the time of a job was spent on."""

    goodput: float | None
    """Share of training in all time but `queued`, 0 to 1; null before there is any, and where a script that reports no
    steps was restarted: how much it repeated is not known."""
    seconds: dict[TimeCategory, float]
    """Seconds by category: `queued`, `waiting` (back-off), `starting`, `training`, `saving`, `replayed`,
    `stalled` (no progress until a hang was found, or until it continued)."""
    intervals: list[IntervalPublic]
    """Intervals without gaps from submission to the end, or to now. Within an attempt training comes first, then all
    saving, then what was replayed later, then what was stalled: they show how long each took, not when."""


class EventPublic(ApiModel):
    """One event in the history of a job."""

    id: int
    """Id of the event: grows across all jobs."""
    at: Timestamp
    """When it happened."""
    kind: str
    """Type of the event, such as `state`, `stalled` or `chaos`; docs/reference/events.md lists all."""
    from_state: str | None
    """State before the event; null where it changed none."""
    to_state: str | None
    """State after the event; null where it changed none."""
    reason: Utf8Str
    """Why it happened, in a sentence; "" where the type says it all."""


class ChaosPublic(ApiModel):
    """A fault that was sent to the keeper."""

    attempt: int
    """Number of the attempt that it hits."""
    fault: str
    """Kind of the fault, as in the request."""
    rank: int | None
    """Target rank; null for a fault that targets no single rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPublic(SnapshotInfo):
    """A committed snapshot (checkpoint)."""

    created_at: Timestamp
    """When the snapshot was committed."""
    pinned: bool = False
    """Whether a person has pinned it: then it is kept until the job is deleted."""
    mirrored: bool | None = None
    """Whether a verified copy is off the box; null for a job without `mirror`."""


class SnapshotList(Page[SnapshotPublic]):
    """Page of snapshots."""

    policy: Utf8Str | None = Field(examples=["every 42 steps"])
    """When snapshots are taken, as of the latest attempt; null before the first."""
    copies: Utf8Str | None = Field(None, examples=["s3://bucket/runs/k3v9x2m1qa"])
    """URL of the off-box copies, for `rekindle import`; null where there are none."""


class CodePublic(ApiModel):
    """The code of a job as it was submitted."""

    digest: str
    """Digest of all files: equal digests mean equal files."""
    files: int
    """Number of files."""
    bytes: int
    """Size of all files in bytes."""


class ConfigurationPublic(ApiModel):
    """What a job runs with; null is what was not recorded."""

    directory: Utf8Str
    """Working directory of the script, on the server's machine."""
    code: CodePublic | None
    """The code as it was submitted; null for a recipe."""
    environment: JsonObject | None
    """Host, system, processor, cores, memory (bytes), Python and packages, as the keeper recorded them."""


class Bundle(ApiModel):
    """An uploaded code archive."""

    id: str = Field(pattern="^sha256:[0-9a-f]{64}$", examples=["sha256:" + "0" * 64])
    """Id of the archive, for `code.bundle` of a job."""
    bytes: int
    """Size of the archive in bytes."""
