"""What the server answers, generated from its OpenAPI document by ``make generate``: do not edit.

Times are ISO 8601 in UTC, durations are seconds, sizes are bytes.
"""

from typing import Any, Literal, TypedDict

__all__ = [
    "Attempt",
    "AuditEntry",
    "BuiltIn",
    "Checkpoint",
    "Code",
    "Configuration",
    "Device",
    "DeviceUser",
    "Devices",
    "Disabled",
    "DiskUsage",
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
    "Row",
    "SameError",
    "Scope",
    "Slurm",
    "Snapshot",
    "SnapshotList",
    "SnapshotPolicyOptions",
    "SourceLine",
    "SourceState",
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
    "Via",
]


class SnapshotPolicyOptions(TypedDict):
    """When to take a snapshot, whichever is due first. Without any rule: as the script says, else `auto`.

    `auto`: the interval with the lowest expected cost, even if the script sets another one. `keep`: number of latest
    snapshots to keep. `monitor`: the best snapshot by this metric is kept as well.
    """

    every_steps: int | None
    every_seconds: float | None
    every_epochs: int | None
    keep: int
    auto: bool
    monitor: str | None


class RankRange(TypedDict):
    """Minimum and maximum number of ranks."""

    min: int
    max: int


class NodeRange(TypedDict):
    """Minimum and maximum number of nodes of a job on Slurm; each attempt uses as many as answer."""

    min: int
    max: int


class Slurm(TypedDict):
    """What was requested of Slurm, and what it says of the job's latest Slurm job.

    `job_id` is null before Slurm has taken it. `state` is Slurm's own word, or UNKNOWN where Slurm does not answer;
    `reason` says in plain words what it waits for or how it ended. `hosts` are the nodes that Slurm gave to it.
    """

    partition: str | None
    account: str | None
    qos: str | None
    time: str | None
    constraint: str | None
    extra: list[str]
    job_id: int | None
    state: str | None
    reason: str | None
    hosts: list[str]


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
    """What torchrun runs: a script, a module or a recipe."""

    kind: str
    value: str


class Checkpoint(TypedDict):
    """A checkpoint that the script itself wrote, or that was there before it.

    `path` is relative to the working directory where it is in it. `attempt`: the one that wrote it last, 0 if none did.
    `complete`: false while it is being written, and where that was interrupted. `loaded`: the latest attempt that
    loaded it.
    """

    path: str
    kind: str
    bytes: int
    written_at: str | None
    attempt: int
    complete: bool
    loaded: int | None


class Job(TypedDict):
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
    exclude: list[str]
    gitignore: bool
    keep_links: bool
    id: str
    number: int
    name: str
    owner: str | None
    state: str
    phase: str | None
    intent: str
    attempt: int
    world_size: int | None
    ranks: RankRange
    nodes: NodeRange
    slurm: Slurm | None
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
    target: Target
    code: dict[str, str]
    snapshot_step: int | None
    checkpoints: list[Checkpoint]
    estimated_step: int | None
    estimated_epoch: int | None
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
    python: str
    warnings: list[str]
    experiment_id: str | None


class Fault(TypedDict):
    """A fault that was injected on request; `snapshot` is the step of the snapshot that it damaged."""

    at: str | None
    fault: str | None
    rank: int | None
    snapshot: int | None


class Attempt(TypedDict):
    """One launch of torchrun.

    `replayed_steps`: how many of its steps were lost, so that later attempts repeat them; null where not known (yet).
    `resumed_from_path`: the checkpoint that the script loaded by itself.
    `args`: the arguments of the script, where placeholders or `on_restart` make them differ from those of the job.
    """

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
    """``line`` counts from 1."""

    line: int
    text: str


SourceState = Literal["current", "changed", "unreadable"]


class StoryFrame(TypedDict):
    """One level of a stack. ``file`` is relative to the job's code where it is in it (``is_user``)."""

    file: str
    line: int
    function: str
    is_user: bool
    source: list[SourceLine]
    source_state: SourceState


class RankGroup(TypedDict):
    """Ranks that did the same when a hang was found: `what` follows their names in a sentence."""

    ranks: list[int]
    what: str
    frames: list[StoryFrame]


class SameError(TypedDict):
    """Another job that failed by the same exception at the same line."""

    id: str
    number: int
    name: str


class Story(TypedDict):
    """What happened to a job, for people.

    `rank`, `stream` and `offset` (bytes) are where the log shows it, `at` when it happened, in seconds since the epoch;
    null where not known. `frames` are those of the user's code and then those of libraries, innermost first;
    `hidden_frames` more are not listed. `attempt` is 0 before the first. `groups` are the ranks of a hang.
    """

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
    """One line without control characters; of a progress bar its last state, and at most 4,000 bytes.

    `offset` and `end` are its bytes in the log of its rank and stream. `at`: seconds since the epoch, accurate to a
    quarter of a second, null where nobody has recorded it. `removed`: bytes before it that were removed, since the log
    was larger than the setting `log_bytes`.
    """

    rank: int
    stream: str
    offset: int
    end: int
    at: float | None
    level: LogLevel
    text: str
    removed: int


class LogLines(TypedDict):
    """Lines of several logs of an attempt, in the order in which they came.

    `next` and `previous` are cursors for `after` and `before`, null where nothing was read. `complete`: nothing more
    follows in the direction of reading, at present; `ended`: and nothing will. `has_times` is false where nobody has
    recorded when the lines came: they are in the order of ranks and streams. `unfinished`: of each log the last line,
    as far as it was written, where it has no end yet; only in answers that are complete.
    """

    attempt: int
    items: list[TimedLine]
    next: str | None
    previous: str | None
    complete: bool
    ended: bool
    has_times: bool
    unfinished: list[TimedLine]


TimeCategory = Literal["queued", "waiting", "starting", "training", "saving", "replayed"]


class Interval(TypedDict):
    """A span of a job's time; `attempt` is null between attempts."""

    category: TimeCategory
    attempt: int | None
    started_at: str | None
    seconds: float


class TimeBreakdown(TypedDict):
    """Seconds by category; `goodput` is the share of training in all time but `queued`, null before there is any.

    It is null, too, where a script that reports no steps was restarted: how much it repeated is not known.

    The intervals follow each other without gaps from submission to the end, or to now. Within an attempt training
    comes first, then all saving, then what was replayed later: they show how long each took, not when.
    """

    goodput: float | None
    seconds: dict[str, float]
    intervals: list[Interval]


class Code(TypedDict):
    """The code of a job as it was submitted. Equal digests mean equal files."""

    digest: str
    files: int
    bytes: int


class Configuration(TypedDict):
    """What a job runs with; null is what was not recorded.

    `directory`: working directory of the script, on the server's machine. `environment`: host, system, processor,
    cores, memory (bytes), Python and packages, as recorded by the keeper.
    """

    directory: str
    code: Code | None
    environment: dict[str, Any] | None


RankState = Literal["starting", "running", "done", "drained", "failed", "killed"]


class GpuUsage(TypedDict):
    """A whole GPU, whoever uses it; null where its driver has no value. ``index`` is as the job's ranks count."""

    index: int
    utilization_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    temperature_celsius: float | None
    power_watts: float | None


class Usage(TypedDict):
    """Resources that a rank and its child processes use.

    `cpu_percent`: 100 is one core, null in the first sample. Bytes read and written are those from and to disks since
    the rank started.
    """

    at: str | None
    cpu_percent: float | None
    rss_bytes: int
    read_bytes: int
    written_bytes: int
    devices: list[GpuUsage]


class Rank(TypedDict):
    """One rank of one attempt.

    `heartbeat_age` is in seconds; `process_state` is the kernel's letter (R, S, D, T …); `straggler` is the share of
    time (0 to 1) that the other ranks wait for this one, null where it is small. `hang_timeout`: seconds without
    progress after which the keeper takes the job for hung, as it learns them from the job; null where not known.
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
    usage: Usage | None
    hang_timeout: float | None


class Snapshot(TypedDict):
    """A committed snapshot.

    `verified`: every file of its manifest exists with the right size. `score`: the value that the metric
    `snapshot.monitor` of the job had at this step. `pinned`: never deleted to free space.
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
    """Page of snapshots; `policy` describes when they are taken, as of the latest attempt, null before the first."""

    items: list[Snapshot]
    next: str | None
    policy: str | None


class MetricSeries(TypedDict):
    """A metric of one attempt. Points are step, epoch, seconds since the epoch, value (null where not finite)."""

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
    """A fault that was sent to the keeper; `rank` is its target, null for a fault that targets no single rank."""

    attempt: int
    fault: str
    rank: int | None


class QueuedJob(TypedDict):
    """A job in the queue.

    `position`: 1 is next; null beyond the first 200, and where it waits for something other than slots. `slots` is the
    least that it can start with, `device` their kind or their names. `waiting_for` says in one sentence why it waits,
    null before the scheduler has seen it; `reason` is that as a sentence. `estimated_start_at` is null where it is not
    known.
    """

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
    """What one owner has used and holds. `slot_seconds` decay: those of `half_life_days` ago count half.

    `share`: their part of the slot-seconds of all owners, 0 to 1. The less an owner has used, the earlier their jobs
    start among those of the same priority. `max_slots` and `max_queued` are their limits, null where they have none.
    """

    owner: str
    slot_seconds: float
    share: float
    slots: float
    running: int
    queued: int
    max_slots: int | None
    max_queued: int | None


class Queue(TypedDict):
    """Page of the queue, the next job first; jobs that wait for something other than slots come last.

    `owners`: least used first, with everybody who has jobs that run or wait, or has used slots.
    """

    items: list[QueuedJob]
    next: str | None
    owners: list[OwnerShare]
    queued: int
    half_life_days: float


class ExperimentSummary(TypedDict):
    """An experiment; `states` counts its jobs by state, `over` is true when all of them have ended."""

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
    """One row of a section. `reason` says in one sentence why it is there, "" where its state says it all.

    `job`, `experiment` and `device` are set by `kind`; a `disk` notice has none of them. `at`: since when; null where
    that is not known.
    """

    kind: Literal["job", "experiment", "device", "disk"]
    reason: str
    at: str | None
    job: Job | None
    experiment: ExperimentSummary | None
    device: str | None


class OverviewCounts(TypedDict):
    """How many rows each section would have without its limit. Those of `done` are not counted."""

    needs_you: int
    running: int
    next: int


class Overview(TypedDict):
    """What people care about, in that order; no job is in two sections.

    `needs_you`: low disk space, devices in use by others or put aside, failures that nobody has looked at (see `seen`
    of a job), and held jobs. `running`: jobs that hold slots. `next`: the queue in the order in which it starts, then
    jobs that wait for something other than slots. `done`: what has ended, latest first, with all jobs of an experiment
    as one row.
    """

    needs_you: list[OverviewItem]
    running: list[OverviewItem]
    next: list[OverviewItem]
    done: list[OverviewItem]
    counts: OverviewCounts


class Disabled(TypedDict):
    """A device that was put aside by a person, or by rekindle itself, where `by` is null."""

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
    """A slot, room for one rank; `job` is the id of the job that holds it, `memory` is in bytes.

    A slot that is `held` without a `job` is held by a job that you may not read. Several jobs may share a GPU: `jobs`
    are all that you may read, `job` is the first, and `free_share` is what is left for others, 0 to 1. `unusable` says
    why no job gets the slot now: since it was put aside (`disabled`), or since processes of no job use it (`users`).
    """

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
    """How two GPUs reach each other; ``first`` and ``second`` are slot names."""

    first: str
    second: str
    kind: str


class Devices(TypedDict):
    """Page of slots, with the links between the GPUs by the names of `nvidia-smi topo`."""

    items: list[Device]
    next: str | None
    links: list[Link]


class KindBytes(TypedDict):
    """Bytes by what they are: snapshots, output and metrics, code with what scripts wrote there, and the rest."""

    snapshots: int
    logs: int
    code: int
    other: int


class OwnerUsage(TypedDict):
    """The space that the jobs of one person take; `owner` is null for jobs without one."""

    owner: str | None
    jobs: int
    bytes: int


class StuckDeletion(TypedDict):
    """A directory that cannot be removed, and why."""

    path: str
    reason: str
    since: str | None
    next_try_at: str | None


class DiskUsage(TypedDict):
    """What takes the disk of all runs. `unmeasured` jobs are not counted yet."""

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
    """One thing that is removed, and why; `count` is a number of rows."""

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
    """What was removed or, in a dry run, would be: the first 1,000 items, with the number and size of all."""

    items: list[PruneItem]
    next: str | None
    dry_run: bool
    count: int
    bytes: int
    failures: list[PruneFailure]


class Row(TypedDict):
    """One combination of parameters; a value is the mean over its repeats, ``spread`` their minimum and maximum."""

    parameters: dict[str, str | int | float | bool | None]
    trials: list[int]
    values: list[float | None]
    spread: list[tuple[float, float] | None]


class Trial(TypedDict):
    """One job of an experiment. `values` are in the order of the measures, before any division."""

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
    """An experiment with its results. `measures` are the headings of the values of rows and trials.

    In their order are the `metrics` they are made of, what is better (`goals`), and the rows with the `best` value.
    `logged` names every metric of its jobs, at most 1000.
    """

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
    rows: list[Row]
    trials: list[Trial]


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
    """Who you are for this server. `private_jobs`: whether people other than administrators see their own jobs only."""

    person: str
    scope: Scope
    via: Via
    expires_at: str | None
    private_jobs: bool


class Token(TypedDict):
    """A token, without its secret. `last_used_at` may lag ten minutes."""

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
    """A new token; `token` is the secret, which is shown now and never again."""

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
    """One request that changed something or was refused. `person` is null where it is not known."""

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
