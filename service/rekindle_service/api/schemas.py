"""What goes in and out as JSON. Rows keep plain columns; here is what they mean to the outside."""

from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from rekindle.contract.rank_records import RankState

T = TypeVar("T")

MOST_RANKS = 4096
LONGEST_NAME = 200
_LONGEST_FILE_NAME = 255  # bytes


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


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError("nul", "must not hold a NUL character", {"hint": "no command line can carry one"})
    return text


def _printable(text: str) -> str:
    if not text.isprintable() or not text.strip():
        raise PydanticCustomError("unprintable", "must hold something visible and no control characters", {"hint": ""})
    return text


def _path(text: str) -> str:
    if any(len(part.encode()) > _LONGEST_FILE_NAME for part in _no_nul(text).split("/")):
        raise PydanticCustomError("path", "must be a path: no file name has more than 255 bytes", {"hint": ""})
    return text


Argument = Annotated[str, AfterValidator(_no_nul)]
Name = Annotated[str, StringConstraints(max_length=LONGEST_NAME), AfterValidator(_printable)]
PathText = Annotated[str, StringConstraints(min_length=1, max_length=1024), AfterValidator(_path)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=LONGEST_NAME)]
Priority = Annotated[int, Field(ge=-1000, le=1000)]
MaxFailures = Annotated[int, Field(ge=1, le=1000)]
Seconds = Annotated[float, Field(gt=0, le=10 * 365 * 24 * 3600, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1 << 53)]
Moment = Annotated[datetime | None, BeforeValidator(moment)]
Spoken = Annotated[str | None, BeforeValidator(speakable)]


class _Request(BaseModel):
    """A body is taken literally: no unknown field, no number in a string."""

    model_config = ConfigDict(extra="forbid", strict=True)


class RankRange(_Request):
    """How many ranks a job can run with."""

    min: Annotated[int, Field(ge=1, le=MOST_RANKS)]
    max: Annotated[int, Field(ge=1, le=MOST_RANKS)]

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if self.min > self.max:
            raise PydanticCustomError("ranks", "min must not be greater than max", {"hint": "swap them?"})
        return self


def _ranks_from_number(value: Any) -> Any:
    """``2`` means ``{"min": 2, "max": 2}``."""
    if isinstance(value, dict | RankRange):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_RANKS:
        raise PydanticCustomError(
            "ranks",
            'must be a whole number from 1 to {most}, or {{"min": …, "max": …}}',
            {"most": MOST_RANKS, "hint": "it is the number of processes that torchrun starts"},
        )
    return {"min": value, "max": value}


class Code(_Request):
    """Where the code lies; it is copied at submit."""

    path: PathText


class SnapshotCadence(_Request):
    """When a snapshot is due; whichever comes first. All left out: the training side's own default."""

    every_steps: Count | None = None
    every_seconds: Seconds | None = None
    every_epochs: Count | None = None
    keep: Annotated[int, Field(ge=1, le=1000)] = 3


class JobCreate(_Request):
    """A job to be run. Exactly one of ``script``, ``module`` and ``recipe``; everything else has a default."""

    name: Name | None = None
    script: PathText | None = None
    module: PathText | None = None
    recipe: PathText | None = None
    args: Annotated[list[Argument], Field(max_length=10_000)] = []
    code: Code | None = None
    env: Annotated[dict[VariableName, Argument], Field(max_length=1_000)] = {}
    python: PathText | None = None
    ranks: Annotated[RankRange, BeforeValidator(_ranks_from_number, json_schema_input_type=int | RankRange)] = Field(
        default_factory=lambda: RankRange(min=1, max=1)
    )
    nodes: Annotated[int, Field(ge=1, le=1)] = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    priority: Priority = 0
    after: Annotated[list[str], Field(max_length=100)] = []
    max_failures: MaxFailures = 3
    hang_timeout: Seconds | None = None
    time_limit: Seconds | None = None
    snapshot: SnapshotCadence = Field(default_factory=SnapshotCadence)
    warm: bool = True

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        given = [kind for kind in ("script", "module", "recipe") if getattr(self, kind) is not None]
        if len(given) != 1:
            raise PydanticCustomError(
                "target",
                "exactly one of script, module and recipe must be given, not {given}",
                {"given": " and ".join(given) or "none", "hint": "a script is a file, a module is as for `python -m`"},
            )
        return self


class JobPatch(_Request):
    """What may be changed of a job that is there."""

    name: Name | None = None
    priority: Priority | None = None
    max_failures: MaxFailures | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise PydanticCustomError("patch", "at least one of name, priority and max_failures must be given")
        return self


class Login(_Request):
    """What the login page sends."""

    token: Annotated[str, StringConstraints(max_length=1000)]


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


class Cadence(BaseModel):
    """When snapshots are due."""

    every_steps: int | None = None
    every_seconds: float | None = None
    every_epochs: int | None = None
    keep: int = 3


class JobPublic(BaseModel):
    """A job as it stands. Values of ``env`` are never told, only the names."""

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
    device: str
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
    priority: int
    max_failures: int
    hang_timeout: float | None
    time_limit: float | None
    target: Target
    args: list[str]
    env: dict[str, str]
    after: list[str]
    snapshot: Cadence
    snapshot_step: int | None
    notice: Spoken
    created_at: Moment
    started_at: Moment
    ended_at: Moment
    goodput: float | None
    version: int
    python: str
    warm: bool


class AttemptPublic(BaseModel):
    """One launch of torchrun."""

    number: int
    state: Literal["running", "ended"]
    started_at: Moment
    ranks_running_at: Moment
    ended_at: Moment
    outcome: dict[str, Any] | None
    resumed_from_step: int | None
    last_step: int | None
    durable_step: int | None
    world_size: int | None
    devices: list[str]
    next_try_at: Moment
    reason: Spoken


class RankPublic(BaseModel):
    """One rank of one attempt; ``heartbeat_age`` in seconds."""

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
    durable_step: int | None
    notice: Spoken
    device: Spoken
    heartbeat_age: float | None
    last_line: Spoken


MetricPoint = tuple[int, int | None, float, float | None]
"""Step, epoch, seconds since the epoch, value (null where it was not finite)."""


class MetricSeries(BaseModel):
    attempt: int
    name: str
    points: list[MetricPoint]


class SnapshotPublic(BaseModel):
    """``verified``: every file of the manifest is there with its size."""

    model_config = ConfigDict(from_attributes=True)

    step: int
    epoch: int | None
    bytes: int
    verified: bool
    world_size: int
    created_at: Moment


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


class StackPublic(BaseModel):
    """Python stacks of all threads of a rank, as text."""

    attempt: int
    rank: int
    stack: str
