"""What the server answers about a job; moments are ISO 8601 in UTC, durations seconds, sizes bytes."""

from dataclasses import dataclass
from typing import Any, TypedDict

Outcome = TypedDict(
    "Outcome",
    {
        "class": str,  # a keyword, hence this form
        "message": str,
        "rank": int | None,
        "exit_code": int | None,
        "signal": str | None,
        "exception": str | None,
        "file": str | None,
        "line": int | None,
    },
)
"""How an attempt or a job ended."""


class Job(TypedDict):
    """A job as it stands; the answer of a newer server may hold more."""

    id: str
    number: int
    name: str
    state: str
    phase: str | None
    intent: str
    attempt: int
    world_size: int | None
    ranks: dict[str, int]
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
    outcome: Outcome | None
    next_try_at: str | None
    queue_position: int | None
    waiting_for: str | None
    priority: int
    max_failures: int
    hang_timeout: float | None
    time_limit: float | None
    target: dict[str, str]
    code: dict[str, str]
    args: list[str]
    env: dict[str, str]
    after: list[str]
    snapshot: dict[str, Any]
    snapshot_step: int | None
    notice: str | None
    created_at: str | None
    started_at: str | None
    ended_at: str | None
    goodput: float | None
    version: int
    python: str
    warm: bool
    experiment_id: str | None


class Fault(TypedDict):
    """Injected on request; ``snapshot`` is the step of the one that was damaged."""

    at: str | None
    fault: str
    rank: int | None
    snapshot: int | None


class Attempt(TypedDict):
    """One launch of torchrun."""

    number: int
    state: str
    started_at: str | None
    ranks_running_at: str | None
    ended_at: str | None
    outcome: Outcome | None
    resumed_from_step: int | None
    last_step: int | None
    snapshot_step: int | None
    world_size: int | None
    devices: list[str]
    next_try_at: str | None
    reason: str | None
    faults: list[Fault]


class TimePiece(TypedDict):
    """One stretch of a job's life; ``attempt`` is None where none was under way."""

    category: str  # queued, waiting, starting, training, saving or replayed
    attempt: int | None
    started_at: str | None
    seconds: float


class JobTime(TypedDict):
    """What every second of a job went into; ``seconds`` adds the intervals up."""

    goodput: float | None
    seconds: dict[str, float]
    intervals: list[TimePiece]


class Configuration(TypedDict):
    """``directory``: where the script runs, on the server's machine. None is what is not on record."""

    directory: str
    code: dict[str, Any] | None
    environment: dict[str, Any] | None


class Rank(TypedDict):
    """One process of one attempt; ``straggler``: the share of the time that the others wait for it."""

    rank: int
    local_rank: int | None
    host: str | None
    pid: int | None
    state: str
    exit_code: int | None
    signal: str | None
    phase: str | None
    epoch: int | None
    step: int | None
    steps: int | None
    steps_per_second: float | None
    resumed_from_step: int | None
    snapshot_step: int | None
    notice: str | None
    device: str | None
    process_state: str | None
    heartbeat_age: float | None
    straggler: float | None
    last_line: str | None


class Snapshot(TypedDict):
    step: int
    epoch: int | None
    bytes: int
    verified: bool
    world_size: int
    created_at: str | None
    score: float | None
    best: bool


class SnapshotList(TypedDict):
    """``policy``: how often they are taken, in words."""

    items: list[Snapshot]
    policy: str | None


class Injection(TypedDict):
    """A fault on its way; ``rank`` is the one that it strikes."""

    attempt: int
    fault: str
    rank: int | None


class MetricSeries(TypedDict):
    """Points are ``[step, epoch, seconds since the epoch, value]``."""

    attempt: int
    name: str
    points: list[tuple[int, int | None, float, float | None]]


class StoryEvent(TypedDict):
    """One thing that happened to a job."""

    id: int
    at: str | None
    kind: str
    from_state: str | None
    to_state: str | None
    reason: str | None


class Device(TypedDict):
    """One slot, room for one rank; ``job`` is the id of the one that holds it."""

    name: str
    device: str
    index: int
    title: str
    memory: int | None
    uuid: str | None
    job: str | None
    job_name: str | None
    job_state: str | None


class Devices(TypedDict):
    """``links``: how two GPUs reach each other."""

    items: list[Device]
    links: list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class LogPart:
    """Raw bytes of a log; the next part begins at ``next_offset``."""

    data: bytes
    next_offset: int


def rests(job: Job) -> bool:
    """Whether nothing more will happen to the job by itself: it is over, or held."""
    held = job["state"] == "queued" and job["intent"] == "hold"
    return held or job["state"] in ("succeeded", "failed", "cancelled")
