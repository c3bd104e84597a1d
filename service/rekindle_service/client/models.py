"""What the server answers, generated from its OpenAPI document by ``make models``: do not edit.

Times are ISO 8601 in UTC, durations are seconds, sizes are bytes.
"""

from typing import Any, Literal, TypedDict


class SnapshotPolicyOptions(TypedDict):
    """When a snapshot is due, whichever comes first. Without any rule: what the script says, and else ``auto``.

    ``auto``: the interval that costs least, whatever the script says. ``monitor``: the best snapshot by this metric is
    kept, too.
    """

    every_steps: int | None
    every_seconds: float | None
    every_epochs: int | None
    keep: int
    auto: bool
    monitor: str | None


class Ranks(TypedDict):
    min: int
    max: int


OutcomeClass = Literal[
    "success",
    "user_error",
    "oom",
    "signal",
    "hang",
    "comm",
    "nan",
    "disk_full",
    "preempted",
    "cancelled",
    "launch_error",
    "keeper_lost",
    "host_lost",
]

Outcome = TypedDict(
    "Outcome",
    {
        "class": OutcomeClass,
        "message": str,
        "rank": int | None,
        "exit_code": int | None,
        "signal": str | None,
        "exception": str | None,
        "file": str | None,
        "line": int | None,
        "retryable": bool,
        "evidence": dict[str, Any],
    },
)
"""The verdict's input and the user's answer to "why?". Fields that do not apply are None."""


class Target(TypedDict):
    kind: str
    value: str


class Job(TypedDict):
    """A job as it is now. Of ``env``, only the names are shown."""

    args: list[str]
    env: dict[str, str]
    nodes: int
    device: Literal["auto", "cpu", "cuda"]
    priority: int
    after: list[str]
    max_failures: int
    hang_timeout: float | None
    time_limit: float | None
    snapshot: SnapshotPolicyOptions
    warm: bool
    id: str
    number: int
    name: str
    state: str
    phase: str | None
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
    outcome: Outcome | None
    next_try_at: str | None
    queue_position: int | None
    waiting_for: str | None
    target: Target
    code: dict[str, str]
    snapshot_step: int | None
    notice: str | None
    created_at: str | None
    started_at: str | None
    ended_at: str | None
    goodput: float | None
    version: int
    python: str
    experiment_id: str | None


class Fault(TypedDict):
    """A fault that a user had injected; ``snapshot`` is the step of the one that was damaged."""

    at: str | None
    fault: str | None
    rank: int | None
    snapshot: int | None


class Attempt(TypedDict):
    """One launch of torchrun."""

    number: int
    state: Literal["running", "ended"]
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


TimeCategory = Literal["queued", "waiting", "starting", "training", "saving", "replayed"]


class Interval(TypedDict):
    """One stretch of a job's life; `attempt` is null where none was under way."""

    spending: TimeCategory
    attempt: int | None
    began_at: str | None
    seconds: float


class JobTime(TypedDict):
    """`seconds` by what they went into; `goodput` is the share of training in all but `queued`, null before any of it.

    The pieces follow each other without gaps from submission to the end, or to now. Within an attempt training comes
    first, then all its saving, then what a later attempt had to do again: they tell how long each took, not when.
    """

    goodput: float | None
    seconds: dict[str, float]
    pieces: list[Interval]


class Code(TypedDict):
    """The code as it was submitted. Equal digests mean equal files."""

    digest: str
    files: int
    bytes: int


class Configuration(TypedDict):
    """``folder``: where the script runs, on the server's machine.

    ``surroundings``: host, system, processor, cores, memory (bytes), python and packages, as the keeper has them.
    """

    folder: str
    code: Code | None
    surroundings: dict[str, Any] | None


RankState = Literal["starting", "running", "done", "drained", "failed", "killed"]


class DeviceUsage(TypedDict):
    """A GPU; ``index`` is as the job's ranks count. What its driver does not tell is null."""

    index: int
    utilization_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    temperature_celsius: float | None
    power_watts: float | None


class RankUsage(TypedDict):
    """What a rank and the processes it has started use now; 100 ``cpu_percent`` are one core, null at first."""

    cpu_percent: float | None
    rss_bytes: int
    devices: list[DeviceUsage]


class Rank(TypedDict):
    """One rank of one attempt; ``heartbeat_age`` in seconds, ``process_state`` the kernel's letter (R, S, D, T …).

    ``straggler``: the share of the time (0 to 1) that the others wait for it, where that is much; else null.
    """

    rank: int
    local_rank: int | None
    host: str | None
    pid: int | None
    state: RankState
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
    usage: RankUsage | None


class Snapshot(TypedDict):
    """``verified``: every file of the manifest is there with its size.

    ``pinned``: never deleted to make room.
    ``score``: the value of the metric that the job's ``snapshot.best`` names, where it was logged at this step.
    """

    step: int
    epoch: int | None
    bytes: int
    verified: bool
    world_size: int
    created_at: str | None
    score: float | None
    best: bool
    pinned: bool


class SnapshotList(TypedDict):
    """``snapshot_policy``: how often they are taken and why, in words of the latest attempt; null before the first."""

    items: list[Snapshot]
    next: str | None
    snapshot_policy: str | None


class MetricSeries(TypedDict):
    attempt: int
    name: str
    points: list[tuple[int, int | None, float, float | None]]


class JobEvent(TypedDict):
    """One thing that happened to a job."""

    id: int
    at: str | None
    kind: str
    from_state: str | None
    to_state: str | None
    reason: str | None


class FaultInjection(TypedDict):
    """A fault on its way to the keeper; ``rank`` is the one that it strikes, null where it strikes none."""

    attempt: int
    fault: str
    rank: int | None


class Device(TypedDict):
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


class Link(TypedDict):
    """How two GPUs reach each other, by the names of ``nvidia-smi topo``."""

    first: str
    second: str
    kind: str


class Devices(TypedDict):
    items: list[Device]
    next: str | None
    links: list[Link]


class Row(TypedDict):
    """A combination of parameters; a value is the mean over its repeats, ``spread`` their lowest and highest."""

    parameters: dict[str, Any]
    trials: list[int]
    values: list[float | None]
    spread: list[tuple[float, float] | None]


class Trial(TypedDict):
    """One job of an experiment. ``values`` are in the order of the measures, before any division."""

    job: str
    number: int
    name: str
    state: str
    intent: str
    parameters: dict[str, Any]
    repeat: int
    seconds: float | None
    restarts: int
    outcome: Outcome | None
    values: list[float | None]


class Experiment(TypedDict):
    """An experiment with its table. ``measures`` head the values of rows and cells."""

    id: str
    number: int
    name: str
    title: str
    created_at: str | None
    over: bool
    jobs: int
    states: dict[str, int]
    definition: dict[str, Any]
    command: str | None
    machine: dict[str, Any]
    notes: list[str]
    parameters: list[str]
    measures: list[str]
    rows: list[Row]
    trials: list[Trial]


class ExperimentSummary(TypedDict):
    """``states``: how many jobs are in which; ``over`` when none of them goes on by itself."""

    id: str
    number: int
    name: str
    title: str
    created_at: str | None
    over: bool
    jobs: int
    states: dict[str, int]


class BuiltIn(TypedDict):
    """An experiment that comes with rekindle, as one would send it oneself."""

    name: str
    size: str
    title: str
    jobs: int
    definition: dict[str, Any]
