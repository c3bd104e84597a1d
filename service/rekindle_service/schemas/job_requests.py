"""JSON of requests about jobs: what a job runs, on what and under which rules."""

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rekindle.contract.job_options import (
    MAX_RANKS,
    JobOption,
    JobOptions,
    SlurmOptions,
    SnapshotPolicy,
    job_options,
    options_of,
)
from rekindle.contract.run_dir.control_messages import RANK_FAULTS, Fault
from rekindle.contract.run_dir.json_records import JsonRecord
from rekindle_service.schemas.fields import (
    STRICT,
    ApiModel,
    Argument,
    Device,
    Monitor,
    Name,
    Note,
    PathText,
    RequestModel,
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
    commit: Annotated[str, StringConstraints(pattern="^[0-9a-f]{7,64}$")] | None = None
    """Commit of the directory or bundle, as the client knows it. It is recorded, not checked."""
    dirty: bool = False
    """Whether tracked files of the directory or bundle differ from `commit`."""

    @model_validator(mode="after")
    def _has_one_origin(self) -> Self:
        require_one(self, ("path", "bundle", "git"), hint="ref requires git")
        if self.commit is not None and self.git is not None:
            raise PydanticCustomError("code", "commit requires path or bundle", {"hint": "name the commit by ref"})
        if self.ref is not None and self.git is None:
            raise PydanticCustomError("code", "ref requires git", {"hint": "omit it, or add git"})
        return self


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


_CHECKED: dict[str, Any] = {
    "args": Argument,
    "env": dict[VariableName, EnvValue],
    "device": Device,
    "watch": PathText,
    "mirror": PathText,
    "mirror_files": PathText,
    "on_restart": Argument,
    "exclude": Annotated[Argument, StringConstraints(max_length=1000)],
    "snapshot.monitor": Monitor,
    "slurm.mem": SlurmMemory,
    "slurm.gres": SlurmResources,
    "slurm.gpus_per_node": SlurmGpus,
    "slurm.prologue": ShellLine,
}
"""Types of values, or of items of lists, that have more rules than limits."""


_OPTIONS = {each.path: each for each in job_options()}


def _type_of(option: JobOption) -> Any:
    kind: Any = _CHECKED.get(option.path, SlurmWord if option.section == "slurm" else option.kind)
    if option.choices:
        kind = Literal[tuple(option.choices)]
    if isinstance(option.default, list):
        kind = list.__class_getitem__(kind)
    if option.limits:
        limits: dict[str, Any] = {**option.limits, **({"allow_inf_nan": False} if kind is float else {})}
        kind = Annotated[kind, Field(**limits)]
    return kind | None if option.default is None else kind


def _described(option: JobOption, **known: Any) -> Any:
    """The field of an option in a request; ``known``: what ``Field`` gets in place of the option's default."""
    by_id = "A job is given by its id." if option.metavar == "JOB" else ""
    text = " ".join(filter(None, (option.help, by_id, option.unset and f"Default: {option.unset}.")))
    return Field(**(known or {"default": option.default}), description=text, examples=list(option.examples) or None)


def _changed(name: str) -> Any:
    """The field of an option in a request that changes it."""
    limits: dict[str, Any] = {**_OPTIONS[name].limits}
    return Field(None, **limits)


def _fields(record: type[JsonRecord], section: str = "") -> dict[str, Any]:
    return {each.name: (_type_of(each), _described(each)) for each in options_of(record, section)}


if TYPE_CHECKING:

    class SnapshotPolicyOptions(RequestModel): ...

    class SlurmRequest(RequestModel): ...

    class OptionFields(ApiModel):
        env: dict[str, str | EnvSource]

else:
    SnapshotPolicyOptions = create_model(
        "SnapshotPolicyOptions",
        __base__=RequestModel,
        __module__=__name__,
        __doc__="When to take a snapshot (checkpoint): whichever rule is due first. Without any rule, as the script "
        "sets it in `rekindle.Run`, else `auto`.",
        **_fields(SnapshotPolicy, "snapshot"),
    )
    SlurmRequest = create_model(
        "SlurmRequest",
        __base__=RequestModel,
        __module__=__name__,
        __doc__="What `sbatch` gets for a job on Slurm. With an empty object the job runs there with Slurm's defaults.",
        **_fields(SlurmOptions, "slurm"),
    )
    _policy = Field(
        default_factory=SnapshotPolicyOptions,
        description="When to take snapshots (checkpoints) and how many to keep; default: as the script sets it, else "
        "`auto`.",
    )
    _known = {**_fields(JobOptions), "snapshot": (SnapshotPolicyOptions, _policy)}
    OptionFields = create_model(
        "OptionFields",
        __base__=ApiModel,
        __module__=__name__,
        **{each.name: _known[each.name] for each in fields(JobOptions) if each.name in _known},
    )
"""The options of ``contract.job_options`` that a request and a response share."""


def _ranks(value: Any) -> Any:
    return range_from_number(value, MAX_RANKS, "processes that torchrun starts")


def _nodes(value: Any) -> Any:
    return range_from_number(value, MAX_RANKS, "machines that Slurm gives to the job")


class JobCreate(OptionFields, RequestModel):
    """A job to submit. Exactly one of `script`, `module` and `recipe` is required; everything else has a default."""

    name: Name | None = _described(_OPTIONS["name"])
    script: PathText | None = Field(None, examples=["train.py"])
    """Python script to run: a path relative to the code directory, or an absolute path on the server's machine."""
    module: PathText | None = Field(None, examples=["package.train"])
    """Python module to run, as for `python -m`."""
    recipe: PathText | None = Field(None, examples=["ddp"])
    """Recipe to run: a `name` in the response of `GET /api/v1/recipes`."""
    code: Code | None = None
    """Source of the code; default: the directory of a `script` that is given by its absolute path."""
    python: PathText | None = _described(_OPTIONS["python"])
    ranks: Annotated[RankRange, BeforeValidator(_ranks, json_schema_input_type=int | RankRange)] = _described(
        _OPTIONS["ranks"], default_factory=lambda: RankRange(min=1, max=1)
    )
    nodes: Annotated[NodeRange, BeforeValidator(_nodes, json_schema_input_type=int | NodeRange)] = _described(
        _OPTIONS["nodes"], default_factory=lambda: NodeRange(min=1, max=1)
    )
    slurm: SlurmRequest | None = None
    """Run the job on Slurm with these options; default: on the server's machine."""
    hold: bool = _described(_OPTIONS["hold"])

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        hint = "a script is a file, a module is as for `python -m`"
        require_one(self, ("script", "module", "recipe"), hint)
        return self


class JobPatch(RequestModel):
    """What can be changed of a submitted job. At least one field is required; those not given stay as they are."""

    name: Name | None = None
    """New name, at most 200 characters."""
    priority: int | None = _changed("priority")
    """New priority, -1,000 to 1,000; higher starts first, and may stop running jobs of lower priority."""
    max_failures: int | None = _changed("max_failures")
    """New number of failures in a row without progress after which the job fails, 1 to 1,000."""
    tags: Tags | None = Field(None, examples=[["baseline", "paper/table-2"]])
    """Tags that replace those that the job has, at most 20 of 40 characters each."""
    note: Note | None = None
    """Free text, at most 2,000 characters."""
    archived: bool | None = None
    """True omits a job that has ended from the overview until it is resumed."""
    seen: bool | None = None
    """True records that a person has looked at the outcome of a job that has ended."""

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
    checkpoint: Annotated[str | None, Field(min_length=1, max_length=4096)] = None
    """Path, as listed, of the script's own checkpoint to resume from; newer ones in its directory are moved away."""

    @model_validator(mode="after")
    def _chooses_one(self) -> Self:
        if self.snapshot is not None and self.checkpoint is not None:
            raise ValueError("only one of snapshot and checkpoint may be given")
        return self


class ReplayRequest(RequestModel):
    """Which steps to compute again, and on what."""

    step: Annotated[int | None, Field(ge=1, lt=1 << 53)] = None
    """The first step; default: that of a loss that is not finite, or the first in which ranks diverged."""
    until: Annotated[int | None, Field(ge=1, lt=1 << 53)] = None
    """The last step; default: the first one, or the last in which ranks diverged."""
    device: Device | None = None
    """Device or slots, as of a job; default: those of the original."""
    record: bool = False
    """Record the batch and what each layer computes in the first step."""
    script: str | None = Field(None, examples=["def before_step(step):\n    print(step.batch)\n"])
    """Text of a Python file, at most 64 KiB, whose `before_step(step)` and `after_step(step)` are called in the first
    step."""
    pdb: bool = False
    """Open a debugger before the first step, to which `rekindle attach` connects a terminal."""
    rank: Annotated[int | None, Field(ge=0, lt=MAX_RANKS)] = None
    """Only rank that calls the functions or opens the debugger; default: all call them, rank 0 opens it."""
    check_device: bool = False
    """Replay the first step on the devices of the original and on others, and compare the bits. The response is the
    original; its notice will be the result. A device that alone computes other bits is disabled."""

    @field_validator("until")
    @classmethod
    def _has_a_step(cls, until: int | None, info: ValidationInfo) -> int | None:
        step = info.data.get("step") or 0
        if until is not None and until < step:
            raise PydanticCustomError("until", "must not be before step {step}", {"step": step, "hint": ""})
        return until

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.until is not None and self.step is None:
            raise ValueError("until needs step")
        if self.pdb and self.script is not None:
            raise ValueError("only one of script and pdb may be given")
        if self.rank is not None and not self.pdb and self.script is None:
            raise ValueError("rank needs script or pdb")
        if self.check_device and (self.until, self.device, self.script, self.pdb) != (None, None, None, False):
            raise ValueError("check_device chooses steps and devices itself: omit until, device, script and pdb")
        return self


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
