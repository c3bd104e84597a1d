"""JSON of requests, with the rules that do not depend on this machine."""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from rekindle.contract.chaos import RANK_FAULTS, Fault
from rekindle.contract.job import MAX_RANKS
from rekindle_service.api.schemas.field_types import (
    MaxFailures,
    Name,
    Note,
    PathText,
    RequestModel,
    Tags,
    range_from_number,
    require_one,
)
from rekindle_service.api.schemas.job_options import Code, JobOptions, NodeRange, RankRange, SlurmRequest
from rekindle_service.config.settings import Priority


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


class Login(RequestModel):
    """Login of a browser with the token."""

    token: Annotated[str, StringConstraints(max_length=1000)]
    """The token, as `rekindle token` prints it."""
