"""JSON of jobs and of their numbers by state."""

from pydantic import Field

from rekindle.contract.states import JobState
from rekindle_service.schemas.fields import ApiModel, JsonObject, OutcomeJson, Timestamp, Utf8Str
from rekindle_service.schemas.job_requests import NodeRange, OptionFields, RankRange, SlurmRequest


class Target(ApiModel):
    """What torchrun runs."""

    kind: str = Field(examples=["script"])
    """`script`, `module` or `recipe`."""
    value: str = Field(examples=["train.py"])
    """Path of the script relative to the code, dotted name of the module, or name of the recipe."""


class CheckpointPublic(ApiModel):
    """A checkpoint that the script itself wrote, or that was there before it."""

    path: Utf8Str
    """Path, relative to the working directory where it is in it."""
    kind: Utf8Str
    """Format of the checkpoint, as far as its files show it."""
    bytes: int
    """Size in bytes, of all its files."""
    written_at: Timestamp
    """When it was last written."""
    attempt: int
    """Number of the attempt that wrote it last; 0 if none did."""
    complete: bool
    """False while it is being written, and where that was interrupted."""
    loaded: int | None
    """Number of the latest attempt that loaded it; null if none did."""
    step: int | None = None
    """Step that its name states, or that was printed last when it was found."""
    epoch: int | None = None
    """Epoch that its name states, or that was printed last when it was found."""
    estimated: bool = False
    """Whether step and epoch are what was printed last."""


class StalledPublic(ApiModel):
    """A running job that makes no progress."""

    sentence: Utf8Str = Field(examples=["rank 0 waits in collective 31; rank 1 is still at train.py:41"])
    """Which rank the others wait for, and where, as far as it is known; a hang would be reported so."""
    since: Timestamp
    """When progress was last observed."""
    hung_at: Timestamp
    """When it counts as a hang, unless there is progress before."""
    rank: int | None
    """The rank that the others wait for; null where none stands out."""


class SlurmPublic(SlurmRequest):
    """What was requested of Slurm, and what Slurm reports of the job's latest Slurm job."""

    job_id: int | None = None
    """Id of the Slurm job; null before Slurm has accepted it."""
    state: Utf8Str | None = None
    """State of the Slurm job in Slurm's own word; `UNKNOWN` where Slurm does not answer."""
    reason: Utf8Str | None = None
    """What the Slurm job waits for, lacks or how it ended, in a sentence; null where there is nothing to say."""
    hosts: list[Utf8Str] = Field(default_factory=list)
    """Nodes that Slurm gave to the job; empty before it has started."""
    excluded: dict[Utf8Str, Utf8Str] = Field(default_factory=dict)
    """Nodes on which the job could not run lately, each with the reason: its next Slurm job does not get them. Those of
    a job that has ended are as they were then."""


class ReplayPublic(ApiModel):
    """What a replay computes again."""

    job: str
    """Id of the original."""
    step: int
    """First step that it computes again; the last one is `last_step`."""


class JobRequest(OptionFields):
    """What was requested of a job, with defaults filled in."""

    env: dict[str, str | dict[str, str]]  # type: ignore[assignment]
    """Environment variables of the ranks: values are hidden, references (`file`, `from`) are as requested."""
    name: str
    """Name of the job; several jobs may have the same one."""
    owner: str | None
    """Person who submitted the job; null where that is not recorded."""
    ranks: RankRange
    """Requested number of ranks."""
    nodes: NodeRange
    """Requested number of machines; both are 1 without Slurm."""
    slurm: SlurmPublic | None
    """The job on Slurm; null for a job on the server's machine."""
    target: Target
    """Script, module or recipe that the job runs."""
    code: dict[str, str] = Field(examples=[{"path": "/home/anna/project"}])
    """Source of the code: `path`, `bundle`, or `git` with `ref`; as far as they are known its `commit`, and `dirty`
    (`yes`) where files differ from it. Empty for a recipe."""
    python: str
    """Absolute path of the Python interpreter of the ranks."""
    warnings: list[Utf8Str]
    """What the server noticed when the job was submitted, in sentences."""


class JobPublic(JobRequest):
    """A job and its current state. Values of `env` are hidden, since any of them may be a secret."""

    id: str = Field(examples=["k3v9x0q2ab"])
    """Id of the job: 10 letters and digits."""
    number: int
    """Number of the job, from 1 in the order of submission; never used again."""
    state: str
    """`queued`, `starting`, `running`, `recovering` (between two attempts), `succeeded`, `failed` or `cancelled`."""
    phase: Utf8Str | None
    """What rank 0 does, as the script reports it, such as `train` or `snapshot`; null where it reports nothing."""
    intent: str
    """What people request of the job: `run`, `hold`, `drain` or `cancel`."""
    attempt: int
    """Number of the latest attempt; 0 before the first."""
    world_size: int | None
    """Number of ranks of the latest attempt; null before the first."""
    devices: list[str] = Field(examples=[["cuda:0", "cuda:1"]])
    """Slots that the job holds now, in the order of its ranks; empty on Slurm."""
    epoch: int | None
    """Number of finished epochs, as the script reports it; null where it does not."""
    epochs: int | None
    """Expected number of epochs; null where the script does not report it."""
    step: int | None
    """Number of completed optimizer steps; null where the script does not report it."""
    steps: int | None
    """Expected number of steps; null where the script does not report it."""
    progress: float | None
    """Progress, 0 to 1, as the script reports or prints it; null where it is not known."""
    eta_seconds: float | None
    """Estimated seconds until the training ends; null where they are not known."""
    steps_per_second: float | None
    """Current speed in optimizer steps per second; null where it is not known."""
    restarts: int
    """Number of attempts that followed a failure (retries)."""
    outcome: OutcomeJson | None = Field(examples=[{"class": "oom", "message": "rank 1 ran out of memory", "rank": 1}])
    """How the latest attempt or the job ended: `class`, `message`, `rank`, `exit_code`, `signal`, `exception`, `file`,
    `line`, `retryable` and `evidence`; null before the first has ended."""
    next_try_at: Timestamp | None
    """While the job backs off: when the next attempt starts; else null."""
    queue_position: int | None
    """Position in the queue; 1 is next. Null beyond the first 200 and where the job does not wait for slots."""
    waiting_for: str | None
    """What a queued job waits for, in a sentence; null before the scheduler has seen it, and for other jobs."""
    reason: Utf8Str
    """Why the job is in its state: what it waits for, or how it ended; "" where the state says it all."""
    estimated_start_at: Timestamp | None
    """Estimated start of a queued job; null where the duration of the jobs before it is not known."""
    displaced: JsonObject | None
    """Why a running job is being stopped or moved: `kind` (`preempt`, `resize` or `device`), `by` (id of the job that
    gets its slots, or null), `reason` (a sentence), `at` and `before` (its slots then); null where it is not."""
    preemptions: int
    """Number of times that the job returned to the queue because its slots were needed for another job."""
    snapshot_step: int | None
    """Step of the latest committed snapshot; null before the first."""
    checkpoints: list[CheckpointPublic]
    """Checkpoints that the script writes itself, latest first, as far as they are recognized."""
    estimated_step: int | None
    """Step guessed from printed lines, where the script reports none; null where nothing was recognized."""
    estimated_epoch: int | None
    """Epoch guessed from printed lines, where the script reports none; null where nothing was recognized."""
    stalled: StalledPublic | None
    """Why a running job makes no progress now; null while it does."""
    checked_step: int | None
    """Step that a device check replays, or will replay when the job has ended; null where there is none."""
    notice: Utf8Str | None
    """Something that a person should know, such as a skipped snapshot; null where there is nothing."""
    created_at: Timestamp
    """When the job was submitted."""
    started_at: Timestamp | None
    """When the first attempt was launched; null before that."""
    ended_at: Timestamp | None
    """When the job ended; null before that."""
    archived_at: Timestamp | None
    """When a person put the ended job into the archive; null where nobody did."""
    seen_at: Timestamp | None
    """When a person looked at the outcome of the ended job; null where nobody did."""
    tags: list[str]
    """Tags of the job, in alphabetical order."""
    note: str
    """Free text of a person; "" by default."""
    goodput: float | None
    """Share of the job's time, queueing excluded, that went into steps that count, 0 to 1; null where not known."""
    version: int
    """Version of the job: grows with every change, across all jobs. It is the id of the job's events in the stream."""
    experiment_id: str | None
    """Id of the experiment that the job belongs to; null for a job of its own."""
    replay: ReplayPublic | None
    """What a replay (`POST …/replay`) computes again; null for any other job."""


class DisplacedJob(ApiModel):
    """A running job whose slots another one would get. All but `kind` is null for a job that you may not read."""

    kind: str
    """`preempt`: it would be stopped, return to the queue and resume later; `resize`: it would give up some ranks."""
    id: str | None = None
    """Id of the job."""
    number: int | None = None
    """Number of the job."""
    name: str | None = None
    """Name of the job."""
    owner: str | None = None
    """Person who submitted it; `local` where that is not recorded."""


class ValidatedJob(JobRequest):
    """What would become of a job if it were submitted now. Nothing of it is stored."""

    command: list[str] = Field(examples=[["/usr/bin/python3", "train.py", "--lr", "0.1"]])
    """Command of each rank as words; placeholders in the arguments are replaced in each attempt."""
    slots: float
    """Number of slots, or fractions of slots, that it needs at least to start; 0 on Slurm."""
    devices: list[str] = Field(examples=[["cuda:0", "cuda:1"]])
    """Slots that it would get now; empty where it would wait, and on Slurm."""
    code_files: int
    """Number of files that would be copied; 0 for a recipe."""
    code_bytes: int
    """Size of these files in bytes."""
    starts_in: float | None
    """Estimated seconds until it starts; 0: at once, null where that is not known."""
    queue_position: int | None
    """Position that it would have in the queue; 1 is next, so that no job is ahead. Null beyond the first 200 and where
    it would not wait for slots."""
    reason: str
    """What it would wait for, in a sentence; "" where it would start at once."""
    displaces: list[DisplacedJob]
    """Running jobs whose slots it would get by its priority, as soon as they have had them for `min_run_seconds`."""


class SlotCount(ApiModel):
    """Slots of this machine."""

    held: int
    """Number of slots that jobs hold."""
    total: int
    """Number of all slots."""


class QueueStats(ApiModel):
    """Statistics of all jobs."""

    jobs: dict[JobState, int] = Field(examples=[{"queued": 3, "running": 1}])
    """Number of jobs by state."""
    slots: SlotCount
    """Slots of this machine, held and in total."""
    goodput: float | None
    """Mean goodput of all jobs, weighted by duration and world size, 0 to 1; null before the first job has run."""


class Hello(ApiModel):
    """First event of the stream."""

    version: int
    """Version from which changes are reported."""
    server_started_at: Timestamp
    """When the server was started."""
