"""What comes out as JSON. Rows keep plain columns; here is what they mean to the outside."""

from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict

from rekindle.contract.run_dir.rank_records import RankState
from rekindle.contract.run_dir.usage import GpuUsage
from rekindle_service.api.request_schemas import JobOptions

T = TypeVar("T")


def moment(seconds: float | None) -> datetime | None:
    """Seconds since the epoch as UTC; None for none, and for what no calendar has (jobs write times, too)."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def speakable(value: Any) -> Any:
    """``value`` with every half surrogate pair in it replaced: JSON files may hold some, UTF-8 answers cannot."""
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case dict():
            return {speakable(key): speakable(item) for key, item in value.items()}
        case list():
            return [speakable(item) for item in value]
        case _:
            return value


Moment = Annotated[datetime | None, BeforeValidator(moment)]
Spoken = Annotated[str | None, BeforeValidator(speakable)]


class Page(BaseModel, Generic[T]):
    """A piece of a list; ``next`` is the cursor of the piece after it, null on the last one."""

    items: list[T]
    next: str | None = None


class Ranks(BaseModel):
    min: int
    max: int


class Target(BaseModel):
    kind: str
    value: str


class JobPublic(JobOptions):
    """A job as it is now. Of ``env``, only the names are shown."""

    id: str
    number: int
    name: str
    state: str
    phase: Spoken
    intent: str
    attempt: int
    world_size: int | None
    ranks: Ranks
    devices: list[str]
    epoch: int | None
    epochs: int | None
    step: int | None
    steps: int | None
    progress: float | None
    eta_seconds: float | None
    steps_per_second: float | None
    restarts: int
    outcome: dict[str, Any] | None
    next_try_at: Moment
    queue_position: int | None
    waiting_for: str | None
    target: Target
    code: dict[str, str]
    snapshot_step: int | None
    notice: Spoken
    created_at: Moment
    started_at: Moment
    ended_at: Moment
    goodput: float | None
    version: int
    python: str
    experiment_id: str | None


class FaultPublic(BaseModel):
    """A fault that a user had injected; ``snapshot`` is the step of the one that was damaged."""

    at: Moment
    fault: Spoken
    rank: int | None
    snapshot: int | None


class AttemptPublic(BaseModel):
    """One launch of torchrun.

    ``replayed_steps``: how many of its steps were lost, so that later attempts repeat them; null where not known (yet).
    """

    number: int
    state: Literal["running", "ended"]
    started_at: Moment
    ranks_running_at: Moment
    ended_at: Moment
    outcome: dict[str, Any] | None
    resumed_from_step: int | None
    last_step: int | None
    snapshot_step: int | None
    replayed_steps: int | None
    world_size: int | None
    devices: list[str]
    next_try_at: Moment
    reason: Spoken
    faults: list[FaultPublic]


class RankUsagePublic(BaseModel):
    """What a rank and the processes it has started use now; 100 ``cpu_percent`` are one core, null at first."""

    cpu_percent: float | None
    rss_bytes: int
    devices: list[GpuUsage]


class RankPublic(BaseModel):
    """One rank of one attempt; ``heartbeat_age`` in seconds, ``process_state`` the kernel's letter (R, S, D, T …).

    ``straggler``: the share of the time (0 to 1) that the others wait for it, where that is much; else null.
    """

    model_config = ConfigDict(from_attributes=True)

    rank: int
    local_rank: int | None
    host: Spoken
    pid: int | None
    state: RankState
    exit_code: int | None
    signal: Spoken
    phase: Spoken
    epoch: int | None
    step: int | None
    steps: int | None
    steps_per_second: float | None
    resumed_from_step: int | None
    snapshot_step: int | None
    notice: Spoken
    device: Spoken
    process_state: str | None
    heartbeat_age: float | None
    straggler: float | None
    last_line: Spoken
    usage: RankUsagePublic | None = None


MetricPoint = tuple[int, int | None, float, float | None]
"""Step, epoch, seconds since the epoch, value (null where it was not finite)."""


class MetricSeries(BaseModel):
    attempt: int
    name: str
    points: list[MetricPoint]


class SnapshotPublic(BaseModel):
    """``verified``: every file of the manifest is there with its size.

    ``pinned``: never deleted to make room.
    ``score``: the value of the metric that the job's ``snapshot.best`` names, where it was logged at this step.
    """

    model_config = ConfigDict(from_attributes=True)

    step: int
    epoch: int | None
    bytes: int
    verified: bool
    world_size: int
    created_at: Moment
    score: float | None
    best: bool
    pinned: bool


class SnapshotList(Page[SnapshotPublic]):
    """``snapshot_policy``: how often they are taken and why, in words of the latest attempt; null before the first."""

    snapshot_policy: Spoken


class LogMatch(BaseModel):
    """A place where a text was found; offsets in bytes. `line_offset` is that of its line, or near it in a long one."""

    model_config = ConfigDict(from_attributes=True)

    offset: int
    line_offset: int
    text: Spoken


class LogMatches(BaseModel):
    """Places in the order of the search; `next` is the byte where it goes on, `size` that of the log, in bytes."""

    items: list[LogMatch]
    next: int | None
    size: int


class RankMatches(BaseModel):
    """A log that a text was found in, or that was not searched to its end."""

    rank: int
    stream: str
    count: int
    complete: bool
    first: LogMatch | None


class CodePublic(BaseModel):
    """The code as it was submitted. Equal digests mean equal files."""

    digest: str
    files: int
    bytes: int


class ConfigurationPublic(BaseModel):
    """``folder``: where the script runs, on the server's machine.

    ``surroundings``: host, system, processor, cores, memory (bytes), python and packages, as the keeper has them.
    """

    folder: Annotated[str, BeforeValidator(speakable)]
    code: CodePublic | None
    surroundings: dict[str, Any] | None


class FileDifferencePublic(BaseModel):
    """``diff``: the changed lines in unified form, null where they cannot be told."""

    model_config = ConfigDict(from_attributes=True)

    path: Annotated[str, BeforeValidator(speakable)]
    change: Literal["added", "removed", "changed"]
    diff: Spoken


class MetricName(BaseModel):
    """A metric that a job has logged, and its newest value (null where that was not finite)."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    step: int
    value: float | None


class EventPublic(BaseModel):
    """One thing that happened to a job."""

    id: int
    at: Moment
    kind: str
    from_state: str | None
    to_state: str | None
    reason: Spoken


class DevicePublic(BaseModel):
    """One slot: room for one rank. ``job`` is the id of the one that holds it now; ``memory`` in bytes."""

    name: str
    device: str
    index: int
    title: str
    memory: int | None
    uuid: str | None
    job: str | None
    job_name: str | None
    job_state: str | None


class LinkPublic(BaseModel):
    """How two GPUs reach each other, by the names of ``nvidia-smi topo``."""

    first: str
    second: str
    kind: str


class Devices(Page[DevicePublic]):
    links: list[LinkPublic]


class Hello(BaseModel):
    """First words of the event stream; ``version`` is where it begins."""

    version: int
    server_started_at: Moment


class Health(BaseModel):
    status: str
    version: str


class Readiness(BaseModel):
    status: Literal["ready", "not ready"]
    checks: dict[str, str]


class ChaosPublic(BaseModel):
    """A fault on its way to the keeper; ``rank`` is the one that it strikes, null where it strikes none."""

    attempt: int
    fault: str
    rank: int | None


class StackPublic(BaseModel):
    """Python stacks of all threads of a rank, as text."""

    attempt: int
    rank: int
    stack: str
