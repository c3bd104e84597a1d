"""JSON of experiments: requests and responses."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from rekindle_service.api.schemas.common import JsonObject, MetricPoint, Timestamp
from rekindle_service.api.schemas.requests import STRICT, Argument, Name, no_nul, require_one
from rekindle_service.experiments.comparison import Aggregation, Row
from rekindle_service.experiments.goals import Goal
from rekindle_service.experiments.job_array import MAX_ARRAY, parse_array
from rekindle_service.experiments.matrix import JOB_FIELDS, MAX_JOBS, is_option, upgrade_definition
from rekindle_service.suggestions import did_you_mean

_KIND_HINT = "GET /api/v1/experiments/builtin lists the built-in experiments with their definitions"


def _parameter(key: str) -> str:
    if not is_option(key) and key not in JOB_FIELDS:
        hint = did_you_mean(key, [*JOB_FIELDS, f"--{key}"])
        raise PydanticCustomError(
            "parameter",
            "must be an option of the script with its dashes, or one of {fields}, which are fields of the job",
            {"fields": ", ".join(JOB_FIELDS), "hint": hint},
        )
    return key


def _array(text: str) -> str:
    try:
        parse_array(text)
    except ValueError as error:
        raise PydanticCustomError("array", "{rule}", {"rule": str(error), "hint": ""}) from error
    return text


Word = Annotated[Argument, StringConstraints(min_length=1, max_length=200)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Value = Annotated[Argument, StringConstraints(max_length=1000)] | int | Finite | bool | None
Values = Annotated[list[Value], Field(min_length=1, max_length=200)]
Key = Annotated[Word, AfterValidator(_parameter)]
ArrayText = Annotated[str, StringConstraints(min_length=1, max_length=1000), AfterValidator(_array)]
Matrix = Annotated[dict[Key, Values], Field(min_length=1, max_length=20)]


class Measure(BaseModel):
    """A column of the table: the last, minimum, maximum or mean value of a metric.

    With `relative_to` it is divided by the value of another row: the one with these parameters and otherwise the same.
    `goal` says whether low or high values are better; by default the name of the metric does.
    """

    model_config = STRICT

    metric: Word
    take: Aggregation = "last"
    relative_to: Annotated[dict[Word, Value], Field(min_length=1)] | None = None
    title: Word | None = None
    goal: Goal | None = None


_as_list = BeforeValidator(
    lambda value: [value] if isinstance(value, dict) else value, json_schema_input_type=Matrix | list[Matrix]
)
_from_name = BeforeValidator(
    lambda value: {"metric": value} if isinstance(value, str) else value, json_schema_input_type=Word | Measure
)
Matrices = Annotated[list[Matrix], Field(min_length=1, max_length=200), _as_list]
AnyMeasure = Annotated[Measure, _from_name]


class ExperimentCreate(BaseModel):
    """Jobs that differ in some parameters: a `matrix` with its settings, an `array`, or a `builtin` experiment.

    `matrix` gives the values of each parameter; a list of matrices gives one set of combinations after the other. A key
    with dashes is an option of the script, any other a field of the job. True passes an option without a value; false
    and null omit it.

    `array` runs the same job once for each index, such as `0-9`, `1,3,10-30:5`, or `0-99%4` for four at a time. A job
    finds its index in the variable REKINDLE_ARRAY_INDEX, and `{index}` in its arguments is replaced by it.
    """

    model_config = STRICT

    name: Name | None = None
    args: Annotated[list[Argument], Field(max_length=1000, description="Appended to the arguments of every job")] = []
    builtin: Annotated[str | None, Field(description="One of `GET /experiments/builtin`")] = None
    size: Annotated[str, Field(description="Size of a builtin: small or full")] = "small"
    title: Annotated[str, StringConstraints(max_length=500), AfterValidator(no_nul)] = ""
    base: Annotated[dict[str, Any], Field(description="Fields of every job, as in the body of `POST /jobs`")] = {}
    matrix: Matrices | None = None
    array: Annotated[ArrayText | None, Field(description="Indices of an array, at most 10,000")] = None
    repeats: Annotated[int, Field(ge=1, le=MAX_JOBS)] = 1
    seed_option: Annotated[Word | None, Field(description="Option that gets the index of the repeat, from 0")] = None
    measure: Annotated[
        list[AnyMeasure], Field(max_length=50, description="Columns; default: the last value of every metric")
    ] = []
    sequential: Annotated[bool, Field(description="Run one job at a time, so that durations can be compared")] = False
    parallel: Annotated[int | None, Field(ge=1, le=MAX_ARRAY, description="Most jobs that run at once")] = None

    @model_validator(mode="before")
    @classmethod
    def _upgrade(cls, value: Any) -> Any:
        return upgrade_definition(value) if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        require_one(self, ("builtin", "matrix", "array"), _KIND_HINT)
        own = self.model_fields_set - {"builtin", "size", "name", "args"}
        if self.builtin is not None and own:
            rule = "a builtin has its own {fields}: omit it"
            raise PydanticCustomError("kind", rule, {"fields": ", ".join(sorted(own)), "hint": "args may be given"})
        if self.array is not None and self.model_fields_set & {"repeats", "seed_option"}:
            raise PydanticCustomError("kind", "an array has no repeats: give it more indices", {"hint": ""})
        if self.builtin is None and "size" in self.model_fields_set:
            raise PydanticCustomError("kind", "only a builtin has a size", {"hint": ""})
        return self


class TrialPublic(BaseModel):
    """One job of an experiment. `values` are in the order of the measures, before any division."""

    job: str
    number: int
    name: str
    state: str
    intent: str
    parameters: JsonObject
    repeat: int
    seconds: float | None
    restarts: int
    outcome: JsonObject | None
    values: list[float | None]


class ExperimentSummary(BaseModel):
    """An experiment; `states` counts its jobs by state, `over` is true when all of them have ended."""

    id: str
    number: int
    name: str
    owner: str | None
    title: str
    command: str | None
    created_at: Timestamp
    over: bool
    jobs: int
    states: dict[str, int]


class ExperimentPublic(ExperimentSummary):
    """An experiment with its results. `measures` are the headings of the values of rows and trials.

    In their order are the `metrics` they are made of, what is better (`goals`), and the rows with the `best` value.
    `logged` names every metric of its jobs, at most 1000.
    """

    definition: JsonObject
    machine: dict[str, Any]
    notes: list[str]
    parameters: list[str]
    measures: list[str]
    metrics: list[str]
    goals: list[Goal | None]
    best: list[list[int]]
    logged: list[str]
    rows: list[Row]
    trials: list[TrialPublic]


class CurvePublic(BaseModel):
    """A metric of one job over its steps; of replayed steps, the values of the last attempt."""

    job: str
    name: str
    points: list[MetricPoint]


class BuiltIn(BaseModel):
    """A built-in experiment and its definition, which can be submitted as it is."""

    name: str
    size: str
    title: str
    jobs: int
    definition: dict[str, Any]
