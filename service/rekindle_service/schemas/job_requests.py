"""JSON of requests about jobs: what a job runs, on what and under which rules."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, StringConstraints, Tag, model_validator
from pydantic_core import PydanticCustomError

from rekindle.contract.job import MAX_RANKS
from rekindle.contract.run_dir.control_messages import RANK_FAULTS, Fault
from rekindle_service.config.settings import Priority
from rekindle_service.schemas.fields import (
    STRICT,
    ApiModel,
    Argument,
    Count,
    Device,
    MaxFailures,
    Monitor,
    Name,
    Note,
    PathText,
    RequestModel,
    Seconds,
    ShellLine,
    SlurmGpus,
    SlurmMemory,
    SlurmResources,
    SlurmWord,
    Tags,
    VariableName,
    range_from_number,
    require_one,
)

_Size = Annotated[int, Field(ge=1, le=MAX_RANKS)]


class _Range(RequestModel):
    min: _Size
    """Minimum, at least 1."""
    max: _Size
    """Maximum, at least `min` and at most 4,096."""

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if self.min > self.max:
            raise PydanticCustomError("range", "min must not be greater than max", {"hint": "swap the two values"})
        return self


class RankRange(_Range):
    """Minimum and maximum number of ranks. A job whose numbers differ is elastic."""


class NodeRange(_Range):
    """Minimum and maximum number of nodes of a job on Slurm; each attempt uses as many as answer."""


class SlurmRequest(RequestModel):
    """What `sbatch` gets for a job on Slurm. With an empty object the job runs there with Slurm's defaults."""

    partition: SlurmWord | None = None
    """Partition, as for `sbatch --partition`; default: that of the cluster."""
    account: SlurmWord | None = None
    """Account that is charged, as for `sbatch --account`; default: that of the user."""
    qos: SlurmWord | None = None
    """Quality of service, as for `sbatch --qos`; default: that of the account."""
    time: SlurmWord | None = Field(None, examples=["4:00:00"])
    """Time limit of one allocation, as for `sbatch --time`. At its end the job is drained and continues in the next
    allocation. Default: the limit of the partition."""
    constraint: SlurmWord | None = None
    """Features that nodes must have, as for `sbatch --constraint`; default: any node."""
    mem: SlurmMemory | None = Field(None, examples=["32G"])
    """Memory of each node, as for `sbatch --mem`; default: computed from what the latest job of this name that
    succeeded used, else that of Slurm."""
    gres: SlurmResources | None = Field(None, examples=["gpu:a100:4"])
    """Generic resources of each node, as for `sbatch --gres`; default: the GPUs that its ranks need."""
    gpus_per_node: SlurmGpus | None = Field(None, examples=["4", "a100:4"])
    """GPUs of each node, as for `sbatch --gpus-per-node`; default: as many as its ranks need."""
    prologue: Annotated[list[ShellLine], Field(max_length=50, examples=[["module load cuda"]])] = []
    """Lines that bash runs on each node before the ranks start. Variables that they set reach the ranks."""
    extra: Annotated[list[SlurmWord], Field(max_length=50, examples=[["--cpus-per-task=8"]])] = []
    """Further options of `sbatch`, each as one text. Options that rekindle sets itself are rejected."""


class Code(RequestModel):
    """Where the code comes from: exactly one of `path`, `bundle` and `git`. It is copied when the job is submitted."""

    path: PathText | None = Field(None, examples=["/home/anna/project"])
    """Absolute path of a directory on the server's machine."""
    bundle: Annotated[str, StringConstraints(max_length=100)] | None = None
    """Id of an uploaded archive: `id` in the response of `POST /api/v1/bundles`."""
    git: PathText | None = Field(None, examples=["https://github.com/anna/project.git"])
    """URL or path of a git repository that the server can clone."""
    ref: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    """Branch, tag or full commit id in the git repository; default: its HEAD."""

    @model_validator(mode="after")
    def _has_one_origin(self) -> Self:
        require_one(self, ("path", "bundle", "git"), hint="ref requires git")
        if self.ref is not None and self.git is None:
            raise PydanticCustomError("code", "ref requires git", {"hint": "omit it, or add git"})
        return self


class SnapshotPolicyOptions(RequestModel):
    """When to take a snapshot (checkpoint): whichever rule is due first. Without any rule, as the script sets it in
    `rekindle.Run`, else `auto`."""

    every_steps: Count | None = None
    """Optimizer steps between two snapshots; default: no such rule."""
    every_seconds: Seconds | None = None
    """Seconds between two snapshots; default: no such rule."""
    every_epochs: Count | None = None
    """Epochs between two snapshots; default: no such rule."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of latest snapshots to keep. The best one and pinned ones are kept in addition."""
    auto: bool = False
    """Use the interval with the lowest expected cost, computed from the time a snapshot takes and the failure rate,
    even if the script sets another one."""
    monitor: Monitor | None = Field(None, examples=["accuracy", "-loss"])
    """Metric by which the best snapshot is chosen and kept; a leading `-` means that lower is better. Default: none."""


class EnvSource(RequestModel):
    """Where the value of an environment variable is read when the job starts. The value itself is not stored."""

    model_config = ConfigDict(**STRICT, serialize_by_alias=True, populate_by_name=False)

    file: PathText | None = Field(None, examples=["/run/secrets/wandb"])
    """Absolute path of a file whose content is the value. It is read with the permissions of the job."""
    variable: VariableName | None = Field(
        None, alias="from", description="Name of a variable in the server's environment.", examples=["WANDB_API_KEY"]
    )

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if (self.file is None) == (self.variable is None):
            raise PydanticCustomError("source", "must have either file or from", {"hint": ""})
        if self.file is not None and not self.file.startswith("/"):
            raise PydanticCustomError("source", "file must be an absolute path", {"hint": ""})
        return self

    def reference(self) -> dict[str, str]:
        return self.model_dump(exclude_none=True)


def _kind_of_value(value: object) -> str:
    return "[source]" if isinstance(value, dict | EnvSource) else "[value]"


EnvValue = Annotated[
    Annotated[Argument, Tag("[value]")] | Annotated[EnvSource, Tag("[source]")], Discriminator(_kind_of_value)
]


class JobOptions(ApiModel):
    """Options that a request, ``contract.job.JobSpec`` and a response share by name."""

    args: Annotated[list[Argument], Field(max_length=10_000, examples=[["--epochs", "10"]])] = []
    """Arguments of the script. Placeholders such as `{attempt}` and `{latest:GLOB}` are replaced in each attempt."""
    env: Annotated[dict[VariableName, EnvValue], Field(max_length=1_000)] = {}
    """Environment variables of the ranks: a text, or where to read the value when the job starts."""
    device: Device = Field("auto", examples=["auto", "cuda", "cuda:5,cuda:6"])
    """`auto` (GPUs where the machine has any, else CPU slots), `cpu`, `cuda`, or the slots to choose from."""
    devices_per_rank: Annotated[int, Field(ge=1, le=MAX_RANKS)] = 1
    """Number of devices of each rank."""
    launch: Literal["auto", "torchrun", "process"] = "auto"
    """`torchrun` starts one process per rank; `process` starts a single process that holds all devices, as
    `python train.py` does; `auto` chooses by reading the script."""
    links: Literal["preferred", "required", "avoided"] = "preferred"
    """NVLink between the GPUs of the job: `preferred` takes the free GPUs with the fastest links, `required` only
    linked ones, `avoided` none that are linked."""
    priority: Priority = 0
    """Priority in the queue; higher starts first, and stops running jobs of lower priority for the time being: by
    default only those of its owner (setting `preemption`). `max_priority` limits it."""
    after: Annotated[list[str], Field(max_length=100)] = []
    """Ids of jobs that must have succeeded before this one starts."""
    after_any: Annotated[list[str], Field(max_length=100)] = []
    """Ids of jobs that must have ended before this one starts, whatever their outcome."""
    resizable: bool = True
    """Whether an elastic job may be given more or fewer ranks while it runs."""
    gpu_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Fraction of each GPU that the job takes, above 0 to 1. Below 1, other such jobs share the GPU."""
    max_failures: MaxFailures = 3
    """Number of failures in a row without progress after which the job fails: the limit of retries."""
    hang_timeout: Seconds | None = None
    """Seconds without progress before the ranks count as hung; default: learned from its steps, 300 without steps."""
    time_limit: Seconds | None = None
    """Seconds after the start of its first attempt, retries and back-off included, at which the job is stopped and
    cancelled. A resume starts the count again. Default: no limit."""
    snapshot: SnapshotPolicyOptions = Field(default_factory=SnapshotPolicyOptions)
    """When to take snapshots (checkpoints) and how many to keep; default: as the script sets it, else `auto`."""
    warm: bool = True
    """Keep a standby process with torch imported, so that the next attempt starts sooner."""
    watch: Annotated[list[PathText], Field(max_length=100)] = []
    """Paths in which every file counts as a checkpoint that the script writes itself."""
    on_restart: Annotated[list[Argument], Field(max_length=10_000, examples=[["--resume", "{exists:last.pt}"]])] = []
    """Arguments appended to `args` from the second attempt on. An argument with `{exists:GLOB}` is passed only if a
    file matches."""
    continue_from: Annotated[str | None, Field(max_length=100)] = None
    """Id of a job that has stopped: this job begins with a copy of the files of its script and of its snapshots."""
    continue_step: Annotated[int | None, Field(ge=0, lt=1 << 53)] = None
    """With `continue_from`: step of the snapshot to continue from; default: the latest."""
    exclude: Annotated[list[Annotated[Argument, StringConstraints(max_length=1000)]], Field(max_length=1_000)] = []
    """Patterns, as in a `.gitignore`, of files that are not copied with the code."""
    gitignore: bool = False
    """Do not copy files that the `.gitignore` files of the code name."""
    keep_links: bool = False
    """Keep symbolic links that lead out of the code, such as those to data; by default such a link is rejected."""


def _ranks(value: Any) -> Any:
    return range_from_number(value, MAX_RANKS, "processes that torchrun starts")


def _nodes(value: Any) -> Any:
    return range_from_number(value, MAX_RANKS, "machines that Slurm gives to the job")


class JobCreate(JobOptions, RequestModel):
    """A job to submit. Exactly one of `script`, `module` and `recipe` is required; everything else has a default."""

    name: Name | None = None
    """Name of the job, at most 200 characters; default: the name of the script, module or recipe."""
    script: PathText | None = Field(None, examples=["train.py"])
    """Python script to run: a path relative to the code directory, or an absolute path on the server's machine."""
    module: PathText | None = Field(None, examples=["package.train"])
    """Python module to run, as for `python -m`."""
    recipe: PathText | None = Field(None, examples=["ddp"])
    """Recipe to run: a `name` in the response of `GET /api/v1/recipes`."""
    code: Code | None = None
    """Source of the code; default: the directory of a `script` that is given by its absolute path."""
    python: PathText | None = None
    """Absolute path of the Python interpreter of the ranks; default: the one that runs the server."""
    ranks: Annotated[RankRange, BeforeValidator(_ranks, json_schema_input_type=int | RankRange)] = Field(
        default_factory=lambda: RankRange(min=1, max=1), examples=[2, {"min": 1, "max": 4}]
    )
    """Number of ranks (processes), or a minimum and a maximum, which make the job elastic; default: 1."""
    nodes: Annotated[NodeRange, BeforeValidator(_nodes, json_schema_input_type=int | NodeRange)] = Field(
        default_factory=lambda: NodeRange(min=1, max=1)
    )
    """Number of machines of a job on Slurm, or a minimum and a maximum; default: 1. More than 1 requires `slurm`."""
    slurm: SlurmRequest | None = None
    """Run the job on Slurm with these options; default: on the server's machine."""
    hold: bool = False
    """Hold the job in the queue until it is resumed."""

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        hint = "a script is a file, a module is as for `python -m`"
        require_one(self, ("script", "module", "recipe"), hint)
        return self


class JobPatch(RequestModel):
    """What can be changed of a submitted job. At least one field is required; those not given stay as they are."""

    name: Name | None = None
    """New name, at most 200 characters."""
    priority: Priority | None = None
    """New priority, -1,000 to 1,000; higher starts first, and may stop running jobs of lower priority."""
    max_failures: MaxFailures | None = None
    """New number of failures in a row without progress after which the job fails, 1 to 1,000."""
    tags: Tags | None = Field(None, examples=[["baseline", "paper/table-2"]])
    """Tags that replace those that the job has, at most 20 of 40 characters each."""
    note: Note | None = None
    """Free text, at most 2,000 characters."""
    archived: bool | None = None
    """Of a job that has ended: true omits it from the overview until it is resumed."""
    seen: bool | None = None
    """Of a job that has ended: true records that a person has looked at its outcome."""

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_dump(exclude_none=True):
            names = " or ".join(self.__class__.model_fields)
            raise PydanticCustomError("patch", "must have at least one of the fields {names}", {"names": names})
        return self


class ResumeRequest(RequestModel):
    """How to resume; the body may be omitted."""

    snapshot: Annotated[int | None, Field(ge=0, lt=1 << 53)] = None
    """Step of the snapshot to resume from; later ones are quarantined. Default: the latest snapshot."""


class ChaosRequest(RequestModel):
    """A fault to inject."""

    fault: Annotated[Fault, Field(strict=False)]
    """Kind of the fault: a signal or an exception in a rank, or a fault of torchrun, the keeper or a snapshot."""
    rank: Annotated[int | None, Field(ge=0, lt=MAX_RANKS)] = None
    """Target rank; default: a random running rank, if the fault targets a rank."""

    @model_validator(mode="after")
    def _targets_a_rank_or_none(self) -> Self:
        if self.rank is not None and self.fault not in RANK_FAULTS:
            raise PydanticCustomError(
                "rank", "must be omitted: {fault} targets no single rank", {"fault": self.fault.value, "hint": ""}
            )
        return self
