"""Experiments as JSON: what goes in, and what comes out."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from rekindle_service.api.request_schemas import LITERAL, Argument, Name, no_nul
from rekindle_service.api.schemas import MetricPoint, Moment
from rekindle_service.experiments.comparison import Aggregation
from rekindle_service.experiments.matrix import JOB_FIELDS, MAX_JOBS, is_option, upgrade_definition
from rekindle_service.suggestions import did_you_mean

_NO_KIND = "GET /api/v1/experiments/builtin has those of rekindle, to be sent as they are or changed"


def _parameter(key: str) -> str:
    if not is_option(key) and key not in JOB_FIELDS:
        hint = did_you_mean(key, [*JOB_FIELDS, f"--{key}"])
        raise PydanticCustomError(
            "parameter",
            "must be an option of the script with its dashes, or one of {fields}, which are fields of the job",
            {"fields": ", ".join(JOB_FIELDS), "hint": hint},
        )
    return key


Word = Annotated[Argument, StringConstraints(min_length=1, max_length=200)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Value = Annotated[Argument, StringConstraints(max_length=1000)] | int | Finite | bool | None
Values = Annotated[list[Value], Field(min_length=1, max_length=200)]
Key = Annotated[Word, AfterValidator(_parameter)]
Matrix = Annotated[dict[Key, Values], Field(min_length=1, max_length=20)]


class Measure(BaseModel):
    """A column of the table: the last, minimum, maximum or mean value of a metric.

    With ``relative_to`` it is divided by that of another row: the one with these parameters and otherwise the same.
    """

    model_config = LITERAL

    metric: Word
    take: Aggregation = "last"
    relative_to: Annotated[dict[Word, Value], Field(min_length=1)] | None = None
    title: Word | None = None


def _measure_from_name(value: Any) -> Any:
    """``"loss"`` means ``{"metric": "loss"}``."""
    return {"metric": value} if isinstance(value, str) else value


def _list_of_matrices(value: Any) -> Any:
    """One matrix means a list of it."""
    return [value] if isinstance(value, dict) else value


Matrices = Annotated[
    list[Matrix],
    Field(min_length=1, max_length=200),
    BeforeValidator(_list_of_matrices, json_schema_input_type=Matrix | list[Matrix]),
]
AnyMeasure = Annotated[Measure, BeforeValidator(_measure_from_name, json_schema_input_type=Word | Measure)]


class ExperimentCreate(BaseModel):
    """Jobs that differ in some parameters: ``matrix`` and what belongs to it, or a ``builtin`` that has all that.

    ``matrix`` gives the values of each parameter, and a list of them one set of combinations after the other. A key
    with dashes is an option of the script, any other a field of the job. True gives an option without a value; false
    and null leave it out.
    """

    model_config = LITERAL

    name: Name | None = None
    args: Annotated[list[Argument], Field(max_length=1000, description="Added to the arguments of every job")] = []
    builtin: Annotated[str | None, Field(description="One of `GET /experiments/builtin`")] = None
    size: Annotated[str, Field(description="Of a builtin: small or full")] = "small"
    title: Annotated[str, StringConstraints(max_length=500), AfterValidator(no_nul)] = ""
    base: Annotated[dict[str, Any], Field(description="What all jobs share, as in the body of `POST /jobs`")] = {}
    matrix: Matrices | None = None
    repeats: Annotated[int, Field(ge=1, le=MAX_JOBS)] = 1
    seed_option: Annotated[Word | None, Field(description="Option that gets the number of the repeat, from 0")] = None
    measure: Annotated[
        list[AnyMeasure], Field(max_length=50, description="Columns; left out: the last value of every metric")
    ] = []
    sequential: Annotated[bool, Field(description="For times: none of its jobs run side by side")] = False

    @model_validator(mode="before")
    @classmethod
    def _upgrade(cls, value: Any) -> Any:
        return upgrade_definition(value) if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        if (self.builtin is None) == (self.matrix is None):
            raise PydanticCustomError("kind", "exactly one of builtin and matrix must be given", {"hint": _NO_KIND})
        own = self.model_fields_set - {"builtin", "size", "name", "args"}
        if self.builtin is not None and own:
            rule = "a builtin has its own {fields}: leave that out"
            raise PydanticCustomError("kind", rule, {"fields": ", ".join(sorted(own)), "hint": "args may be added"})
        if self.matrix is not None and "size" in self.model_fields_set:
            raise PydanticCustomError("kind", "only a builtin has a size", {"hint": ""})
        return self


class RowPublic(BaseModel):
    """A combination of parameters; a value is the mean over its repeats, ``spread`` their minimum and maximum."""

    model_config = ConfigDict(from_attributes=True)

    parameters: dict[str, Any]
    trials: list[int]
    values: list[float | None]
    spread: list[tuple[float, float] | None]


class TrialPublic(BaseModel):
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
    outcome: dict[str, Any] | None
    values: list[float | None]


class ExperimentSummary(BaseModel):
    """``states``: how many jobs are in which; ``over`` when none of them goes on by itself."""

    id: str
    number: int
    name: str
    title: str
    created_at: Moment
    over: bool
    jobs: int
    states: dict[str, int]


class ExperimentPublic(ExperimentSummary):
    """An experiment with its table. ``measures`` head the values of rows and cells."""

    definition: dict[str, Any]
    command: str | None
    machine: dict[str, Any]
    notes: list[str]
    parameters: list[str]
    measures: list[str]
    rows: list[RowPublic]
    trials: list[TrialPublic]


class CurvePublic(BaseModel):
    """A metric of one job over its steps; of what was done again after a failure, the last time."""

    job: str
    name: str
    points: list[MetricPoint]


class BuiltIn(BaseModel):
    """An experiment that comes with rekindle, as one would send it oneself."""

    name: str
    size: str
    title: str
    jobs: int
    definition: dict[str, Any]
