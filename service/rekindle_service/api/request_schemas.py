"""What goes in as JSON, and the rules that can be told without looking at this machine."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from rekindle.contract.chaos import RANK_FAULTS, Fault
from rekindle.contract.score import metric_of

MOST_RANKS = 4096
LONGEST_NAME = 200
_LONGEST_FILE_NAME = 255  # bytes


def no_nul(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError("nul", "must not hold a NUL character", {"hint": "no command line can carry one"})
    return text


def _printable(text: str) -> str:
    if not text.isprintable() or not text.strip():
        rule = "must hold something visible and no control characters"
        raise PydanticCustomError("unprintable", rule, {"hint": "a line break is one, too"})
    return text


def _path(text: str) -> str:
    if any(len(part.encode()) > _LONGEST_FILE_NAME for part in no_nul(text).split("/")):
        raise PydanticCustomError("path", "must be a path: no file name has more than 255 bytes", {"hint": ""})
    return text


def _metric(text: str) -> str:
    try:
        metric_of(_printable(text))
    except ValueError as error:
        hint = "put - before the name where less is better, as in -loss"
        raise PydanticCustomError("metric", "must be the name of a logged metric", {"hint": hint}) from error
    return text


Argument = Annotated[str, AfterValidator(no_nul)]
Name = Annotated[str, StringConstraints(max_length=LONGEST_NAME), AfterValidator(_printable)]
PathText = Annotated[str, StringConstraints(min_length=1, max_length=1024), AfterValidator(_path)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=LONGEST_NAME)]
Priority = Annotated[int, Field(ge=-1000, le=1000)]
MaxFailures = Annotated[int, Field(ge=1, le=1000)]
Seconds = Annotated[float, Field(gt=0, le=10 * 365 * 24 * 3600, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1 << 53)]
Monitor = Annotated[str, StringConstraints(max_length=LONGEST_NAME), AfterValidator(_metric)]


LITERAL = ConfigDict(extra="forbid", strict=True)
"""A body is taken literally: no unknown field, no number in a string."""


class _Request(BaseModel):
    model_config = LITERAL


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
            'must be a whole number from 1 to {most}, or an object with "min" and "max"',
            {"most": MOST_RANKS, "hint": "it is the number of processes that torchrun starts"},
        )
    return {"min": value, "max": value}


class Code(_Request):
    """Where the code lies: a folder on the server's machine, an uploaded bundle, or a git repository.

    It is copied at submit. ``ref`` is a branch, a tag or a full commit id, by default the head of the repository.
    """

    path: PathText | None = None
    bundle: Annotated[str, StringConstraints(max_length=100)] | None = None
    git: PathText | None = None
    ref: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None

    @model_validator(mode="after")
    def _has_one_origin(self) -> Self:
        given = [kind for kind in ("path", "bundle", "git") if getattr(self, kind) is not None]
        if len(given) != 1:
            told = {"given": " and ".join(given) or "none", "hint": "ref goes with git"}
            raise PydanticCustomError("code", "exactly one of path, bundle and git must be given, not {given}", told)
        if self.ref is not None and self.git is None:
            raise PydanticCustomError("code", "ref goes with git alone", {"hint": "leave it out"})
        return self


class SnapshotPolicyOptions(_Request):
    """When a snapshot is due, whichever comes first. Without any rule: what the script says, and else ``auto``.

    ``auto``: the interval that costs least, whatever the script says. ``monitor``: the best snapshot by this metric is
    kept, too.
    """

    every_steps: Count | None = None
    every_seconds: Seconds | None = None
    every_epochs: Count | None = None
    keep: Annotated[int, Field(ge=1, le=1000)] = 3
    auto: bool = False
    monitor: Monitor | None = None


class JobOptions(BaseModel):
    """The options that a request, ``contract.job.JobSpec`` and an answer have in common, by the same names."""

    args: Annotated[list[Argument], Field(max_length=10_000)] = []
    env: Annotated[dict[VariableName, Argument], Field(max_length=1_000)] = {}
    nodes: Annotated[int, Field(ge=1, le=MOST_RANKS)] = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    priority: Priority = 0
    after: Annotated[list[str], Field(max_length=100)] = []
    max_failures: MaxFailures = 3
    hang_timeout: Seconds | None = None
    time_limit: Seconds | None = None
    snapshot: SnapshotPolicyOptions = Field(default_factory=SnapshotPolicyOptions)
    warm: bool = True


class JobCreate(JobOptions):
    """A job to be run. Exactly one of ``script``, ``module`` and ``recipe``; everything else has a default."""

    model_config = LITERAL

    name: Name | None = None
    script: PathText | None = None
    module: PathText | None = None
    recipe: PathText | None = None
    code: Code | None = None
    python: PathText | None = None
    ranks: Annotated[RankRange, BeforeValidator(_ranks_from_number, json_schema_input_type=int | RankRange)] = Field(
        default_factory=lambda: RankRange(min=1, max=1)
    )

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


class ResumeRequest(_Request):
    """``snapshot``: the step to go on from; the newest where it is left out. Newer ones are set aside then."""

    snapshot: Annotated[int | None, Field(ge=0, lt=1 << 53)] = None


class ChaosRequest(_Request):
    """A fault to be injected; left out, ``rank`` is any that runs, where the fault strikes one."""

    fault: Annotated[Fault, Field(strict=False)]
    rank: Annotated[int | None, Field(ge=0, lt=MOST_RANKS)] = None

    @model_validator(mode="after")
    def _strikes_a_rank_or_none(self) -> Self:
        if self.rank is not None and self.fault not in RANK_FAULTS:
            raise PydanticCustomError(
                "rank", "must be left out: {fault} strikes no single rank", {"fault": self.fault.value, "hint": ""}
            )
        return self


class Login(_Request):
    """What the login page sends."""

    token: Annotated[str, StringConstraints(max_length=1000)]
