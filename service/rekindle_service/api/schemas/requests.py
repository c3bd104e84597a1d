"""JSON of requests, with the rules that do not depend on this machine."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rekindle.contract.chaos import RANK_FAULTS, Fault
from rekindle.contract.job import MAX_RANKS
from rekindle.contract.score import metric_of

MAX_NAME_LENGTH = 200
_MAX_FILE_NAME_LENGTH = 255  # bytes
_SLOTS = re.compile(r"cuda:\d{1,4}(,cuda:\d{1,4})*|cpu:\d{1,4}(,cpu:\d{1,4})*", re.ASCII)


def no_nul(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError(
            "nul", "must not contain a NUL character", {"hint": "command lines cannot contain one"}
        )
    return text


def _printable(text: str) -> str:
    if not text.isprintable() or not text.strip():
        rule = "must contain a visible character and no control characters"
        raise PydanticCustomError("unprintable", rule, {"hint": "line breaks are control characters"})
    return text


def _path(text: str) -> str:
    if any(len(part.encode()) > _MAX_FILE_NAME_LENGTH for part in no_nul(text).split("/")):
        raise PydanticCustomError("path", "must be a path with file names of at most 255 bytes", {"hint": ""})
    return text


def _metric(text: str) -> str:
    try:
        metric_of(_printable(text))
    except ValueError as error:
        hint = "prefix the name with - where lower is better, as in -loss"
        raise PydanticCustomError("metric", "must be the name of a logged metric", {"hint": hint}) from error
    return text


def _device(text: str) -> str:
    names = text.split(",")
    if text not in ("auto", "cpu", "cuda") and not (_SLOTS.fullmatch(text) and len(set(names)) == len(names)):
        rule = "must be 'auto', 'cpu' or 'cuda', or different slots of one kind, such as cuda:5,cuda:6"
        raise PydanticCustomError("device", rule)
    return text


Device = Annotated[str, StringConstraints(max_length=10_000), AfterValidator(_device)]
Argument = Annotated[str, AfterValidator(no_nul)]
Name = Annotated[str, StringConstraints(max_length=MAX_NAME_LENGTH), AfterValidator(_printable)]
PathText = Annotated[str, StringConstraints(min_length=1, max_length=1024), AfterValidator(_path)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=MAX_NAME_LENGTH)]
Priority = Annotated[int, Field(ge=-1000, le=1000)]
MaxFailures = Annotated[int, Field(ge=1, le=1000)]
Seconds = Annotated[float, Field(gt=0, le=10 * 365 * 24 * 3600, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1 << 53)]
Monitor = Annotated[str, StringConstraints(max_length=MAX_NAME_LENGTH), AfterValidator(_metric)]


STRICT = ConfigDict(extra="forbid", strict=True)
"""Of request bodies: unknown fields are invalid, and values of another type, such as a number as text."""


class _Request(BaseModel):
    model_config = STRICT


def require_one(model: BaseModel, names: tuple[str, ...], hint: str) -> None:
    given = [name for name in names if getattr(model, name) is not None]
    if len(given) != 1:
        *first, last = names
        rule = f"exactly one of {', '.join(first)} and {last} must be given, not {{given}}"
        raise PydanticCustomError("one_of", rule, {"given": " and ".join(given) or "none", "hint": hint})


class RankRange(_Request):
    """Minimum and maximum number of ranks."""

    min: Annotated[int, Field(ge=1, le=MAX_RANKS)]
    max: Annotated[int, Field(ge=1, le=MAX_RANKS)]

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if self.min > self.max:
            raise PydanticCustomError("ranks", "min must not be greater than max", {"hint": "swap the two values"})
        return self


class NodeRange(_Request):
    """Minimum and maximum number of nodes of a job on Slurm; each attempt uses as many as answer."""

    min: Annotated[int, Field(ge=1, le=MAX_RANKS)]
    max: Annotated[int, Field(ge=1, le=MAX_RANKS)]

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if self.min > self.max:
            raise PydanticCustomError("nodes", "min must not be greater than max", {"hint": "swap the two values"})
        return self


def _nodes_from_number(value: Any) -> Any:
    """``2`` means ``{"min": 2, "max": 2}``."""
    if isinstance(value, dict | NodeRange):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_RANKS:
        raise PydanticCustomError(
            "nodes",
            'must be a whole number from 1 to {max}, or an object with "min" and "max"',
            {"max": MAX_RANKS, "hint": "it is the number of machines that Slurm gives to the job"},
        )
    return {"min": value, "max": value}


SlurmWord = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_printable)]


class SlurmRequest(_Request):
    """What `sbatch` gets for a job on Slurm. With an empty object the job runs there with Slurm's defaults.

    `time` limits one allocation, as `sbatch --time` takes it: at its end the job is drained and continues in the next
    one. `extra`: further options of `sbatch`, such as `--mem=32G`; those that rekindle sets itself are refused.
    """

    partition: SlurmWord | None = None
    account: SlurmWord | None = None
    qos: SlurmWord | None = None
    time: SlurmWord | None = None
    constraint: SlurmWord | None = None
    extra: Annotated[list[SlurmWord], Field(max_length=50)] = []


def _ranks_from_number(value: Any) -> Any:
    """``2`` means ``{"min": 2, "max": 2}``."""
    if isinstance(value, dict | RankRange):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_RANKS:
        raise PydanticCustomError(
            "ranks",
            'must be a whole number from 1 to {max}, or an object with "min" and "max"',
            {"max": MAX_RANKS, "hint": "it is the number of processes that torchrun starts"},
        )
    return {"min": value, "max": value}


class Code(_Request):
    """Where the code comes from: a directory on the server's machine, an uploaded bundle, or a git repository.

    It is copied at submission. `ref` is a branch, a tag or a full commit id, by default the head of the repository.
    """

    path: PathText | None = None
    bundle: Annotated[str, StringConstraints(max_length=100)] | None = None
    git: PathText | None = None
    ref: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None

    @model_validator(mode="after")
    def _has_one_origin(self) -> Self:
        require_one(self, ("path", "bundle", "git"), hint="ref requires git")
        if self.ref is not None and self.git is None:
            raise PydanticCustomError("code", "ref requires git", {"hint": "omit it"})
        return self


class SnapshotPolicyOptions(_Request):
    """When to take a snapshot, whichever is due first. Without any rule: as the script says, else `auto`.

    `auto`: the interval with the lowest expected cost, even if the script sets another one. `keep`: number of latest
    snapshots to keep. `monitor`: the best snapshot by this metric is kept as well.
    """

    every_steps: Count | None = None
    every_seconds: Seconds | None = None
    every_epochs: Count | None = None
    keep: Annotated[int, Field(ge=1, le=1000)] = 3
    auto: bool = False
    monitor: Monitor | None = None


class EnvSource(_Request):
    """Where the value of a variable is found when the job starts: nothing of it is stored.

    `file`: absolute path of a file whose content it is, read with the rights of the job. `from`: name of a variable of
    the server's environment.
    """

    model_config = ConfigDict(**STRICT, serialize_by_alias=True, populate_by_name=False)

    file: PathText | None = None
    variable: VariableName | None = Field(None, alias="from")

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if (self.file is None) == (self.variable is None):
            raise PydanticCustomError("source", "must have either file or from", {"hint": ""})
        if self.file is not None and not self.file.startswith("/"):
            raise PydanticCustomError("source", "file must be an absolute path", {"hint": ""})
        return self

    def reference(self) -> dict[str, str]:
        return self.model_dump(exclude_none=True)


def _kind_of_value(value: Any) -> str:
    return "[source]" if isinstance(value, dict | EnvSource) else "[value]"


EnvValue = Annotated[
    Annotated[Argument, Tag("[value]")] | Annotated[EnvSource, Tag("[source]")], Discriminator(_kind_of_value)
]


class JobOptions(BaseModel):
    """Options that a request, ``contract.job.JobSpec`` and a response share by name."""

    args: Annotated[list[Argument], Field(max_length=10_000)] = []
    env: Annotated[dict[VariableName, EnvValue], Field(max_length=1_000)] = {}
    device: Device = "auto"
    devices_per_rank: Annotated[int, Field(ge=1, le=MAX_RANKS)] = 1
    launch: Literal["auto", "torchrun", "process"] = "auto"
    links: Literal["preferred", "required", "avoided"] = "preferred"
    priority: Priority = 0
    after: Annotated[
        list[str], Field(max_length=100, description="Ids of jobs that must have succeeded before this one starts")
    ] = []
    after_any: Annotated[
        list[str], Field(max_length=100, description="Ids of jobs that must have ended before, however they ended")
    ] = []
    resizable: Annotated[bool, Field(description="An elastic job may be given more or fewer ranks while it runs")] = (
        True
    )
    gpu_share: Annotated[
        float,
        Field(gt=0, le=1, description="Part of each GPU that the job takes: below 1, other such jobs get the rest"),
    ] = 1.0
    max_failures: MaxFailures = 3
    hang_timeout: Seconds | None = None
    time_limit: Seconds | None = None
    snapshot: SnapshotPolicyOptions = Field(default_factory=SnapshotPolicyOptions)
    warm: bool = True
    watch: Annotated[list[PathText], Field(max_length=100)] = []
    on_restart: Annotated[
        list[Argument],
        Field(
            max_length=10_000, description="Appended to `args` from the second attempt on, as `{exists:GLOB}` allows"
        ),
    ] = []
    continue_from: Annotated[
        str | None,
        Field(
            max_length=100,
            description="Id of a job that has stopped: the files of its script and its snapshots are copied",
        ),
    ] = None
    continue_step: Annotated[
        int | None,
        Field(ge=0, lt=1 << 53, description="With `continue_from`: the snapshot to continue from; default: the latest"),
    ] = None
    exclude: Annotated[
        list[Annotated[Argument, StringConstraints(max_length=1000)]],
        Field(max_length=1_000, description="Patterns, as in a `.gitignore`, of what is not copied"),
    ] = []
    gitignore: Annotated[bool, Field(description="Do not copy what `.gitignore` files name")] = False
    keep_links: Annotated[bool, Field(description="Keep links that lead out of the code, such as those to data")] = (
        False
    )


class JobCreate(JobOptions, _Request):
    """A job to submit. Exactly one of `script`, `module` and `recipe` is required; everything else has a default."""

    name: Name | None = None
    script: PathText | None = None
    module: PathText | None = None
    recipe: PathText | None = None
    code: Code | None = None
    python: PathText | None = None
    ranks: Annotated[RankRange, BeforeValidator(_ranks_from_number, json_schema_input_type=int | RankRange)] = Field(
        default_factory=lambda: RankRange(min=1, max=1)
    )
    nodes: Annotated[NodeRange, BeforeValidator(_nodes_from_number, json_schema_input_type=int | NodeRange)] = Field(
        default_factory=lambda: NodeRange(min=1, max=1),
        description="Machines of a job on Slurm; more than 1 needs Slurm",
    )
    slurm: SlurmRequest | None = None
    hold: bool = Field(False, description="Wait in the queue until the job is resumed")

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        hint = "a script is a file, a module is as for `python -m`"
        require_one(self, ("script", "module", "recipe"), hint)
        return self


def _sorted_tags(tags: list[str]) -> list[str]:
    return sorted(set(tags))


JobTag = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", max_length=40)]
Tags = Annotated[list[JobTag], Field(max_length=20), AfterValidator(_sorted_tags)]
Note = Annotated[str, StringConstraints(max_length=2000), AfterValidator(no_nul)]


class JobPatch(_Request):
    """What can be changed of a submitted job. `tags` replace those that it has; `note` is free text.

    Of a job that has ended: `archived` omits it from the overview until it is resumed, `seen` notes that a person has
    looked at how it ended.
    """

    name: Name | None = None
    priority: Priority | None = None
    max_failures: MaxFailures | None = None
    tags: Tags | None = None
    note: Note | None = None
    archived: bool | None = None
    seen: bool | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_dump(exclude_none=True):
            names = " or ".join(self.__class__.model_fields)
            raise PydanticCustomError("patch", "must have at least one of the fields {names}", {"names": names})
        return self


class ResumeRequest(_Request):
    """`snapshot`: the step to resume from, by default the latest; later snapshots are then quarantined."""

    snapshot: Annotated[int | None, Field(ge=0, lt=1 << 53)] = None


class ChaosRequest(_Request):
    """A fault to inject. `rank` is its target, by default a random running rank if the fault targets a rank."""

    fault: Annotated[Fault, Field(strict=False)]
    rank: Annotated[int | None, Field(ge=0, lt=MAX_RANKS)] = None

    @model_validator(mode="after")
    def _targets_a_rank_or_none(self) -> Self:
        if self.rank is not None and self.fault not in RANK_FAULTS:
            raise PydanticCustomError(
                "rank", "must be omitted: {fault} targets no single rank", {"fault": self.fault.value, "hint": ""}
            )
        return self


class Login(_Request):
    """Login of a browser with the token."""

    token: Annotated[str, StringConstraints(max_length=1000)]
