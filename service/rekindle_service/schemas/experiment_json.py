"""JSON of experiments: requests and responses."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from rekindle_service.experiments.comparison import (
    Aggregation,
    BestResult,
    ComparisonRow,
    Goal,
    MeasureColumn,
    parse_goal,
)
from rekindle_service.experiments.trials import JOB_FIELDS, MAX_ARRAY, MAX_JOBS, is_option, parse_array
from rekindle_service.schemas.fields import (
    ApiModel,
    Argument,
    JsonObject,
    MetricPoint,
    Name,
    OutcomeJson,
    RequestModel,
    Timestamp,
    no_nul,
    require_one,
)
from rekindle_service.suggestions import did_you_mean

_KIND_HINT = "GET /api/v1/experiments/builtin lists the built-in experiments with their definitions"


def _parameter(key: str) -> str:
    if not is_option(key) and key not in JOB_FIELDS:
        hint = did_you_mean(key, [*JOB_FIELDS, f"--{key}"])
        raise PydanticCustomError(
            "parameter",
            "must be an option of the script with its dashes, or key=, or one of {fields}, which are fields of the job",
            {"fields": ", ".join(JOB_FIELDS), "hint": hint},
        )
    return key


def _array(text: str) -> str:
    try:
        parse_array(text)
    except ValueError as error:
        raise PydanticCustomError("array", "{rule}", {"rule": str(error), "hint": ""}) from error
    return text


def _goal(text: str) -> str:
    try:
        parse_goal(text)
    except ValueError as error:
        raise PydanticCustomError("goal", "{rule}", {"rule": str(error), "hint": ""}) from error
    return text


Word = Annotated[Argument, StringConstraints(min_length=1, max_length=200)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Value = Annotated[Argument, StringConstraints(max_length=1000)] | int | Finite | bool | None
Values = Annotated[list[Value], Field(min_length=1, max_length=200)]
Key = Annotated[Word, AfterValidator(_parameter)]
ArrayText = Annotated[str, StringConstraints(min_length=1, max_length=1000), AfterValidator(_array)]
Matrix = Annotated[dict[Key, Values], Field(min_length=1, max_length=20)]


class Measure(RequestModel):
    """A column of the table of results: an aggregate of a metric."""

    metric: Word
    """Name of the metric."""
    take: Aggregation = "last"
    """Aggregation of its values over the steps: `last`, `min`, `max` or `mean`."""
    relative_to: Annotated[dict[Word, Value], Field(min_length=1)] | None = None
    """Divide by the value of another row: the one with these parameters and otherwise the same; default: do not."""
    title: Word | None = None
    """Heading of the column; default: made of the aggregation and the metric."""
    goal: Goal | None = None
    """`min` or `max`: whether low or high values are better; default: as the name of the metric suggests."""


_as_list = BeforeValidator(
    lambda value: [value] if isinstance(value, dict) else value, json_schema_input_type=Matrix | list[Matrix]
)
_from_name = BeforeValidator(
    lambda value: {"metric": value} if isinstance(value, str) else value, json_schema_input_type=Word | Measure
)
Matrices = Annotated[list[Matrix], Field(min_length=1, max_length=200), _as_list]
AnyMeasure = Annotated[Measure, _from_name]


class ExperimentCreate(RequestModel):
    """Jobs that differ in some parameters: exactly one of `matrix`, `array` and `builtin` is required."""

    name: Name | None = None
    """Name of the experiment, at most 200 characters; default: that of the builtin, else `experiment` or `array`."""
    args: Annotated[list[Argument], Field(max_length=1000)] = []
    """Arguments appended to those of every job."""
    builtin: str | None = None
    """Name of a built-in experiment: one of `GET /api/v1/experiments/builtin`."""
    size: Literal["small", "full"] = "small"
    """Size of a builtin: `small` or `full`."""
    title: Annotated[str, StringConstraints(max_length=500), AfterValidator(no_nul)] = ""
    """Heading for people, at most 500 characters."""
    base: Annotated[dict[str, Any], Field(examples=[{"recipe": "ddp", "ranks": 2}])] = {}
    """Fields of every job, as in the body of `POST /api/v1/jobs`."""
    matrix: Matrices | None = Field(None, examples=[{"--lr": [0.1, 0.01], "ranks": [1, 2]}])
    """Values of each parameter, of which every combination is a job; a list of matrices gives the combinations of one
    after the other. A key with dashes is an option of the script, `key=` an argument `key=value`, any other a field of
    the job. True passes an option without a value; false and null omit it."""
    array: ArrayText | None = Field(None, examples=["0-9", "1,3,10-30:5", "0-99%4"])
    """Indices of an array, at most 10,000: the same job once for each of them; `%4` runs at most four at a time. A job
    finds its index in the variable `REKINDLE_ARRAY_INDEX`, and `{index}` in its arguments is replaced by it."""
    repeats: Annotated[int, Field(ge=1, le=MAX_JOBS)] = 1
    """Number of jobs with the same parameters; all jobs together are at most 200."""
    seed_option: Word | None = Field(None, examples=["--seed"])
    """Option of the script that gets the index of the repeat, from 0; default: none."""
    measure: Annotated[list[AnyMeasure], Field(max_length=50)] = []
    """Columns of the table, each a metric's name or an object; default: the last value of every metric."""
    goal: Annotated[Word, AfterValidator(_goal)] | None = Field(None, examples=["loss", "-cost", "+gain"])
    """Metric by which the best combination is chosen; `-` in front: low is better, `+`: high; default: by its name."""
    prune: bool = False
    """Drain a job whose goal is not among the best third, after a ninth and after a third of the training."""
    conclude: Annotated[dict[Word, Word], Field(max_length=10)] = Field({}, examples=[{"--lr": "accuracy"}])
    """Sentences below the table: what a column, by its heading, shows about a parameter or another column."""
    reference: Annotated[list[Annotated[str, StringConstraints(max_length=500)]], Field(max_length=20)] = []
    """Lines below the table, such as what others have measured."""
    show_output: bool = False
    """Let the command line print below the table what the ranks of each job have printed last."""
    sequential: bool = False
    """Run one job at a time, so that durations can be compared."""
    parallel: Annotated[int | None, Field(ge=1, le=MAX_ARRAY)] = None
    """Maximum number of jobs that run at once; default: no limit."""

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        require_one(self, ("builtin", "matrix", "array"), _KIND_HINT)
        own = self.model_fields_set - {"builtin", "size", "name", "args", "parallel"}
        if self.builtin is not None and own:
            rule = "a builtin has its own {fields}: omit it"
            raise PydanticCustomError(
                "kind", rule, {"fields": ", ".join(sorted(own)), "hint": "args and parallel may be given"}
            )
        if self.array is not None and self.model_fields_set & {"repeats", "seed_option"}:
            raise PydanticCustomError("kind", "an array has no repeats: give it more indices", {"hint": ""})
        if self.prune and (self.goal is None or self.array is not None):
            lack = "a matrix, not an array" if self.goal else "a goal: the metric by which jobs are compared"
            raise PydanticCustomError("kind", "prune needs {lack}", {"lack": lack, "hint": "as in goal = 'loss'"})
        headings = [MeasureColumn(**each.model_dump()).heading for each in self.measure]
        if unknown := [heading for heading in self.conclude.values() if heading not in headings]:
            hint = did_you_mean(unknown[0], headings)
            rule = "conclude names {heading}, which is no heading of a measure"
            raise PydanticCustomError("kind", rule, {"heading": unknown[0], "hint": hint})
        if self.builtin is None and "size" in self.model_fields_set:
            raise PydanticCustomError("kind", "only a builtin has a size", {"hint": ""})
        return self


class TrialPublic(ApiModel):
    """One job of an experiment."""

    job: str
    """Id of the job."""
    number: int
    """Number of the job."""
    name: str
    """Name of the job."""
    state: str
    """State of the job."""
    intent: str
    """What people request of the job: `run`, `hold`, `drain` or `cancel`."""
    parameters: JsonObject
    """Its values of the parameters."""
    repeat: int
    """Index of the repeat, from 0."""
    seconds: float | None
    """Seconds for which it has had slots, without the time before it was resumed; null before its first launch."""
    restarts: int
    """Number of attempts that followed a failure (retries)."""
    outcome: OutcomeJson | None
    """How it ended, with the same keys as `outcome` of a job; null before that."""
    values: list[float | None]
    """Values of the measures, in their order and before any division; null where there is none."""
    pruned: str | None
    """Why it was pruned; null for a job that was not, or was resumed since."""


class ExperimentSummary(ApiModel):
    """An experiment without its results."""

    id: str
    """Id of the experiment."""
    number: int
    """Number of the experiment, from 1 in the order of submission."""
    name: str
    """Name of the experiment."""
    owner: str | None
    """Person who submitted it; null where that is not recorded."""
    title: str
    """Heading for people; "" by default."""
    command: str | None
    """Command that submits the same experiment again; null for one that is not built in."""
    created_at: Timestamp
    """When it was submitted."""
    over: bool
    """Whether all its jobs have ended."""
    jobs: int
    """Number of its jobs."""
    states: dict[str, int]
    """Number of its jobs by state."""


class ExperimentPublic(ExperimentSummary):
    """An experiment with its results."""

    definition: JsonObject
    """The request, with values of environment variables hidden."""
    machine: dict[str, Any]
    """Hardware and software of the machine at submission."""
    notes: list[str]
    """What the results show, what others have measured, and what was omitted at submission and why, in sentences."""
    parameters: list[str]
    """Names of all parameters, in their order."""
    measures: list[str]
    """Headings of the columns: the order of `values` in rows and trials."""
    metrics: list[str]
    """Metric of each column."""
    goals: list[Goal | None]
    """Of each column, whether low (`min`) or high (`max`) values are better; null where that is not known."""
    best: list[list[int]]
    """Of each column, the indices of the rows with the best value."""
    logged: list[str]
    """Names of all metrics of its jobs, at most 1,000."""
    result: BestResult
    """The best combination so far."""
    best_command: str | None
    """Command that submits the best combination as a job of its own; null where none is better than another."""
    rows: list[ComparisonRow]
    """Combinations of parameters with their values."""
    trials: list[TrialPublic]
    """Jobs with their values."""


class CurvePublic(ApiModel):
    """A metric of one job over its steps."""

    job: str
    """Id of the job."""
    name: str
    """Name of the metric."""
    points: list[MetricPoint]
    """Points: step, epoch (or null), seconds since the epoch, value (null where not finite). Of replayed steps, the
    values of the last attempt."""


class BuiltIn(ApiModel):
    """A built-in experiment and its definition, which can be submitted as it is."""

    name: str
    """Name, for `builtin` of a request."""
    size: str
    """`small` or `full`."""
    title: str
    """Heading for people."""
    jobs: int
    """Number of jobs."""
    definition: dict[str, Any]
    """Body of a request that submits it."""
