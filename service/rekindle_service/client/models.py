"""What the server answers, generated from its OpenAPI document by ``make generate``: do not edit.

Times are ISO 8601 in UTC, durations are seconds, sizes are bytes.
"""

from typing import Any, Literal, TypedDict

__all__ = [
    "Attempt",
    "AuditEntry",
    "BestResult",
    "BuiltIn",
    "Checkpoint",
    "Code",
    "ComparisonRow",
    "Configuration",
    "Device",
    "DeviceUser",
    "Devices",
    "Disabled",
    "DiskUsage",
    "DisplacedJob",
    "Experiment",
    "ExperimentSummary",
    "Fault",
    "FaultInjection",
    "GpuUsage",
    "Interval",
    "ItemKind",
    "Job",
    "JobEvent",
    "KindBytes",
    "Link",
    "LogLevel",
    "LogLines",
    "Me",
    "MetricSeries",
    "NewToken",
    "NodeRange",
    "Outcome",
    "OutcomeClass",
    "Overview",
    "OverviewCounts",
    "OverviewItem",
    "OwnerShare",
    "OwnerUsage",
    "PruneFailure",
    "PruneItem",
    "PruneResult",
    "Queue",
    "QueuedJob",
    "RaisedException",
    "Rank",
    "RankGroup",
    "RankRange",
    "RankState",
    "SameError",
    "Scope",
    "Slurm",
    "Snapshot",
    "SnapshotList",
    "SnapshotPolicyOptions",
    "SourceLine",
    "SourceState",
    "Stalled",
    "Story",
    "StoryFrame",
    "StoryKind",
    "StuckDeletion",
    "Target",
    "TimeBreakdown",
    "TimeCategory",
    "TimedLine",
    "Token",
    "Trial",
    "Usage",
    "ValidatedJob",
    "Via",
]


class SnapshotPolicyOptions(TypedDict):
    """When to take a snapshot (checkpoint): whichever rule is due first. Without any rule, as the script sets it in
    `rekindle.Run`, else `auto`.
    """

    every_steps: int | None
    every_seconds: float | None
    every_epochs: int | None
    keep: int
    auto: bool
    monitor: str | None


class RankRange(TypedDict):
    """Minimum and maximum number of ranks. A job whose numbers differ is elastic."""

    min: int
    max: int


class NodeRange(TypedDict):
    """Minimum and maximum number of nodes of a job on Slurm; each attempt uses as many as answer."""

    min: int
    max: int


class Slurm(TypedDict):
    """What was requested of Slurm, and what Slurm reports of the job's latest Slurm job."""

    partition: str | None
    account: str | None
    qos: str | None
    time: str | None
    constraint: str | None
    mem: str | None
    gres: str | None
    gpus_per_node: str | None
    prologue: list[str]
    extra: list[str]
    job_id: int | None
    state: str | None
    reason: str | None
    hosts: list[str]
    excluded: dict[str, str]


class Target(TypedDict):
    """What torchrun runs."""

    kind: str
    value: str


class DisplacedJob(TypedDict):
    """A running job whose slots another one would get. All but `kind` is null for a job that you may not read."""

    kind: str
    id: str | None
    number: int | None
    name: str | None
    owner: str | None


class ValidatedJob(TypedDict):
    """What would become of a job if it were submitted now. Nothing of it is stored."""

    args: list[str]
    env: dict[str, str | dict[str, str]]
    device: str
    devices_per_rank: int
    launch: Literal["auto", "torchrun", "process"]
    links: Literal["preferred", "required", "avoided"]
    priority: int
    after: list[str]
    after_any: list[str]
    resizable: bool
    gpu_share: float
    max_failures: int
    hang_timeout: float | None
    time_limit: float | None
    snapshot: SnapshotPolicyOptions
    warm: bool
    watch: list[str]
    on_restart: list[str]
    continue_from: str | None
    continue_step: int | None
    exclude: list[str]
    gitignore: bool
    keep_links: bool
    name: str
    owner: str | None
    ranks: RankRange
    nodes: NodeRange
    slurm: Slurm | None
    target: Target
    code: dict[str, str]
    python: str
    warnings: list[str]
    command: list[str]
    slots: float
    devices: list[str]
    code_files: int
    code_bytes: int
    starts_in: float | None
    queue_position: int | None
    reason: str
    displaces: list[DisplacedJob]


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
"""How an attempt ended: input of the retry policy, and the answer to "why?". Fields that do not apply are None."""


class Checkpoint(TypedDict):
    """A checkpoint that the script itself wrote, or that was there before it."""

    path: str
    kind: str
    bytes: int
    written_at: str | None
    attempt: int
    complete: bool
    loaded: int | None


class Stalled(TypedDict):
    """A running job that makes no progress."""

    sentence: str
    since: str | None
    hung_at: str | None
    rank: int | None


class Job(TypedDict):
    """A job and its current state. Values of `env` are hidden, since any of them may be a secret."""

    args: list[str]
    env: dict[str, str | dict[str, str]]
    device: str
    devices_per_rank: int
    launch: Literal["auto", "torchrun", "process"]
    links: Literal["preferred", "required", "avoided"]
    priority: int
    after: list[str]
    after_any: list[str]
    resizable: bool
    gpu_share: float
    max_failures: int
    hang_timeout: float | None
    time_limit: float | None
    snapshot: SnapshotPolicyOptions
    warm: bool
    watch: list[str]
    on_restart: list[str]
    continue_from: str | None
    continue_step: int | None
    exclude: list[str]
    gitignore: bool
    keep_links: bool
    name: str
    owner: str | None
    ranks: RankRange
    nodes: NodeRange
    slurm: Slurm | None
    target: Target
    code: dict[str, str]
    python: str
    warnings: list[str]
    id: str
    number: int
    state: str
    phase: str | None
    intent: str
    attempt: int
    world_size: int | None
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
    reason: str
    estimated_start_at: str | None
    displaced: dict[str, Any] | None
    preemptions: int
    snapshot_step: int | None
    checkpoints: list[Checkpoint]
    estimated_step: int | None
    estimated_epoch: int | None
    stalled: Stalled | None
    notice: str | None
    created_at: str | None
    started_at: str | None
    ended_at: str | None
    archived_at: str | None
    seen_at: str | None
    tags: list[str]
    note: str
    goodput: float | None
    version: int
    experiment_id: str | None


class Fault(TypedDict):
    """A fault that was injected on request."""

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
    resumed_from_path: str | None
    last_step: int | None
    snapshot_step: int | None
    replayed_steps: int | None
    world_size: int | None
    devices: list[str]
    next_try_at: str | None
    reason: str | None
    args: list[str] | None
    faults: list[Fault]


StoryKind = Literal["failure", "hang", "stop", "running", "finished", "waiting"]


class RaisedException(TypedDict):
    """The exception that ended the script."""

    type: str
    message: str


class SourceLine(TypedDict):
    """One line of code."""

    line: int
    text: str


SourceState = Literal["current", "changed", "unreadable"]


class StoryFrame(TypedDict):
    """One level of a stack."""

    file: str
    line: int
    function: str
    is_user: bool
    source: list[SourceLine]
    source_state: SourceState


class RankGroup(TypedDict):
    """Ranks that did the same when a hang was found."""

    ranks: list[int]
    what: str
    frames: list[StoryFrame]


class SameError(TypedDict):
    """Another job that failed by the same exception at the same line."""

    id: str
    number: int
    name: str


class Story(TypedDict):
    """What happened to a job, for people."""

    attempt: int
    kind: StoryKind
    title: str
    sentence: str
    rank: int | None
    stream: str | None
    offset: int | None
    at: float | None
    exception: RaisedException | None
    frames: list[StoryFrame]
    hidden_frames: int
    groups: list[RankGroup]
    same_error: list[SameError]
    next_step: str | None


LogLevel = Literal["debug", "info", "warning", "error"]


class TimedLine(TypedDict):
    """One line of a log."""

    rank: int
    stream: str
    offset: int
    end: int
    at: float | None
    level: LogLevel
    text: str
    removed: int


class LogLines(TypedDict):
    """Lines of several logs of an attempt, in the order in which they were written."""

    attempt: int
    items: list[TimedLine]
    next: str | None
    previous: str | None
    complete: bool
    ended: bool
    has_times: bool
    unfinished: list[TimedLine]


TimeCategory = Literal["queued", "waiting", "starting", "training", "saving", "replayed", "stalled"]


class Interval(TypedDict):
    """A span of a job's time."""

    category: TimeCategory
    attempt: int | None
    started_at: str | None
    seconds: float


class TimeBreakdown(TypedDict):
    """What the time of a job was spent on."""

    goodput: float | None
    seconds: dict[str, float]
    intervals: list[Interval]


class Code(TypedDict):
    """The code of a job as it was submitted."""

    digest: str
    files: int
    bytes: int


class Configuration(TypedDict):
    """What a job runs with; null is what was not recorded."""

    directory: str
    code: Code | None
    environment: dict[str, Any] | None


RankState = Literal["starting", "running", "done", "drained", "failed", "killed"]


class GpuUsage(TypedDict):
    """A whole GPU, whoever uses it; null where its driver has no value."""

    index: int
    utilization_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    temperature_celsius: float | None
    power_watts: float | None


class Usage(TypedDict):
    """Resources that a rank and its child processes use."""

    at: str | None
    cpu_percent: float | None
    rss_bytes: int
    read_bytes: int
    written_bytes: int
    devices: list[GpuUsage]


class Rank(TypedDict):
    """One rank of one attempt. Null is what is not known or does not apply."""

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
    usage: Usage | None
    hang_timeout: float | None
    without_progress: float | None


class Snapshot(TypedDict):
    """A committed snapshot (checkpoint)."""

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
    """Page of snapshots."""

    items: list[Snapshot]
    next: str | None
    policy: str | None


class MetricSeries(TypedDict):
    """A metric of one attempt."""

    attempt: int
    name: str
    points: list[tuple[int, int | None, float, float | None]]


class JobEvent(TypedDict):
    """One event in the history of a job."""

    id: int
    at: str | None
    kind: str
    from_state: str | None
    to_state: str | None
    reason: str | None


class FaultInjection(TypedDict):
    """A fault that was sent to the keeper."""

    attempt: int
    fault: str
    rank: int | None


class QueuedJob(TypedDict):
    """A job in the queue."""

    position: int | None
    job: str
    number: int
    name: str
    owner: str
    priority: int
    ranks: RankRange
    slots: float
    device: str
    intent: str
    waiting_for: str | None
    reason: str
    estimated_start_at: str | None
    preemptions: int
    created_at: str | None


class OwnerShare(TypedDict):
    """What one owner has used and holds. The less, the earlier their jobs start among those of the same priority."""

    owner: str
    slot_seconds: float
    share: float
    slots: float
    running: int
    queued: int
    max_slots: int | None
    max_queued: int | None


class Queue(TypedDict):
    """Page of the queue, the next job first; jobs that wait for something other than slots come last."""

    items: list[QueuedJob]
    next: str | None
    owners: list[OwnerShare]
    queued: int
    half_life_days: float


class ExperimentSummary(TypedDict):
    """An experiment without its results."""

    id: str
    number: int
    name: str
    owner: str | None
    title: str
    command: str | None
    created_at: str | None
    over: bool
    jobs: int
    states: dict[str, int]


class OverviewItem(TypedDict):
    """One row of a section: a job, an experiment, a device or a notice about the disk."""

    kind: Literal["job", "experiment", "device", "disk"]
    reason: str
    at: str | None
    job: Job | None
    experiment: ExperimentSummary | None
    device: str | None


class OverviewCounts(TypedDict):
    """Number of rows that each section would have without its limit. Those of `done` are not counted."""

    needs_you: int
    running: int
    next: int


class Overview(TypedDict):
    """What people care about, in that order; no job is in two sections."""

    needs_you: list[OverviewItem]
    running: list[OverviewItem]
    next: list[OverviewItem]
    done: list[OverviewItem]
    counts: OverviewCounts


class Disabled(TypedDict):
    """A device that was disabled by a person, or by rekindle itself."""

    reason: str
    at: str | None
    by: str | None


class DeviceUser(TypedDict):
    """A process of no job that uses a GPU. What its machine does not show is None, as in a container."""

    pid: int
    name: str | None
    user: str | None
    memory_bytes: int | None


class Device(TypedDict):
    """A slot: room for one rank. A slot that is `held` without a `job` is held by a job that you may not read."""

    name: str
    device: str
    index: int
    model: str | None
    memory: int | None
    uuid: str | None
    bus_id: str | None
    numa_node: int | None
    title: str
    held: bool
    job: str | None
    job_name: str | None
    job_state: str | None
    jobs: list[str]
    free_share: float
    unusable: str | None
    disabled: Disabled | None
    users: list[DeviceUser]


class Link(TypedDict):
    """How two GPUs reach each other."""

    first: str
    second: str
    kind: str


class Devices(TypedDict):
    """Page of slots."""

    items: list[Device]
    next: str | None
    links: list[Link]
    excluded_nodes: dict[str, str]


class KindBytes(TypedDict):
    """Bytes on the disk by kind."""

    snapshots: int
    logs: int
    code: int
    other: int


class OwnerUsage(TypedDict):
    """The space that the jobs of one person take."""

    owner: str | None
    jobs: int
    bytes: int


class StuckDeletion(TypedDict):
    """A directory that cannot be removed."""

    path: str
    reason: str
    since: str | None
    next_try_at: str | None


class DiskUsage(TypedDict):
    """What takes the disk of all runs."""

    total_bytes: int
    free_bytes: int
    lack_of_space: str | None
    jobs: KindBytes
    bundles_bytes: int
    database_bytes: int
    owners: list[OwnerUsage]
    unmeasured: int
    pending_deletions: int
    stuck_deletions: list[StuckDeletion]


ItemKind = Literal["job", "snapshot", "logs", "bundle", "events", "audit"]


class PruneItem(TypedDict):
    """One thing that is removed."""

    kind: ItemKind
    job_id: str | None
    number: int | None
    name: str
    owner: str | None
    bytes: int
    count: int
    reason: str


class PruneFailure(TypedDict):
    """One thing that should have been removed and was not."""

    item: PruneItem
    reason: str


class PruneResult(TypedDict):
    """What was removed or, in a dry run, would be: at most the first 1,000 items."""

    items: list[PruneItem]
    next: str | None
    dry_run: bool
    count: int
    bytes: int
    failures: list[PruneFailure]


class ComparisonRow(TypedDict):
    """One combination of parameters."""

    parameters: dict[str, str | int | float | bool | None]
    trials: list[int]
    values: list[float | None]
    spread: list[tuple[float, float] | None]


class Trial(TypedDict):
    """One job of an experiment."""

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
    """An experiment with its results."""

    id: str
    number: int
    name: str
    owner: str | None
    title: str
    command: str | None
    created_at: str | None
    over: bool
    jobs: int
    states: dict[str, int]
    definition: dict[str, Any]
    machine: dict[str, Any]
    notes: list[str]
    parameters: list[str]
    measures: list[str]
    metrics: list[str]
    goals: list[Literal["min", "max"] | None]
    best: list[list[int]]
    logged: list[str]
    rows: list[ComparisonRow]
    trials: list[Trial]


class BestResult(TypedDict):
    """The result of an experiment in one line. Empty and null while no job has logged a measured metric."""

    text: str
    measure: str | None
    goal: Literal["min", "max"] | None
    best: float | None
    parameters: dict[str, Any] | None
    low: float | None
    high: float | None


class BuiltIn(TypedDict):
    """A built-in experiment and its definition, which can be submitted as it is."""

    name: str
    size: str
    title: str
    jobs: int
    definition: dict[str, Any]


Scope = Literal["read", "submit", "admin"]

Via = Literal["token", "browser", "socket"]


class Me(TypedDict):
    """Who you are for this server."""

    person: str
    scope: Scope
    via: Via
    expires_at: str | None
    private_jobs: bool


class Token(TypedDict):
    """A token, without its secret."""

    id: str
    person: str
    scope: Scope
    note: str
    created_by: str
    created_at: str | None
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    valid: bool


class NewToken(TypedDict):
    """A new token with its secret."""

    id: str
    person: str
    scope: Scope
    note: str
    created_by: str
    created_at: str | None
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    valid: bool
    token: str


class AuditEntry(TypedDict):
    """One request that changed something or was rejected."""

    id: int
    at: str | None
    person: str | None
    token_id: str | None
    via: str
    address: str
    action: str
    target: str
    status: int
    detail: str
