"""The table of an experiment: a row for each combination of parameters, a column for each measure. Pure."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

from rekindle.contract.field_texts import DESCRIBED
from rekindle_service.experiments.goals import Goal, best_rows, guess_goal
from rekindle_service.experiments.matrix import Parameters, Trial, label

Aggregation = Literal["last", "min", "max", "mean"]

_MAX_DEFAULT_MEASURES = 12


@dataclass(frozen=True, slots=True)
class Measure:
    """A column: the metric, the aggregation of its values over the steps (``take``), and what it is divided by.

    ``relative_to`` names parameters of another row: the one that has these values and agrees in all other parameters
    that both have. ``goal``: whether low or high values are better; None: as the name of the metric says.
    """

    metric: str
    take: Aggregation = "last"
    relative_to: Parameters | None = None
    title: str | None = None
    goal: Goal | None = None

    @property
    def heading(self) -> str:
        value = self.metric if self.take == "last" else f"{self.take} {self.metric}"
        return self.title or (value if self.relative_to is None else f"{value} / {label(self.relative_to)}")

    @property
    def direction(self) -> Goal | None:
        """Whether low or high values are better; None where neither is declared nor known."""
        return self.goal or guess_goal(self.metric)

    def of(self, values: Sequence[float | None]) -> float | None:
        """The aggregate of a series, in which None is a value that was not finite; None where it has none."""
        if self.take == "last":
            return values[-1] if values else None
        finite = [value for value in values if value is not None]
        return _AGGREGATIONS[self.take](finite) if finite else None


_AGGREGATIONS: dict[str, Callable[[list[float]], float]] = {"min": min, "max": max, "mean": fmean}


@dataclass(frozen=True, slots=True)
class Row:
    """One combination of parameters."""

    __pydantic_config__ = DESCRIBED

    parameters: Parameters
    """Values of the parameters."""
    trials: list[int]
    """Indices of its jobs in `trials`."""
    values: list[float | None]
    """Of each measure, the mean over the repeats; null where there is none."""
    spread: list[tuple[float, float] | None]
    """Of each measure, the minimum and maximum over the repeats; null where there are none."""


@dataclass(frozen=True, slots=True)
class BestResult:
    """The result of an experiment in one line: its first measure that is known to be better low or high.

    ``best`` and ``parameters`` are those of the best row, None where no row is better than another; ``low`` and
    ``high`` are the extremes of all rows.
    """

    measure: str
    goal: Goal | None
    best: float | None
    parameters: Parameters | None
    low: float
    high: float


def best_result(rows: Sequence[Row], measures: Sequence[Measure]) -> BestResult | None:
    """None where no measure has a value."""
    known = [column for column in range(len(measures)) if any(row.values[column] is not None for row in rows)]
    if not known:
        return None
    column = next((each for each in known if measures[each].direction), known[0])
    values = [row.values[column] for row in rows]
    numbers = [value for value in values if value is not None]
    measure = measures[column]
    best = next((rows[index] for index in best_rows(values, measure.direction)), None)
    value, parameters = (None, None) if best is None else (best.values[column], best.parameters)
    return BestResult(measure.heading, measure.direction, value, parameters, min(numbers), max(numbers))


def default_measures(metrics: Iterable[Mapping[str, Any]]) -> list[Measure]:
    """The last value of the first metrics that the trials have logged, for an experiment that names no measure."""
    names = dict.fromkeys(name for each in metrics for name in each)
    return [Measure(name) for name in list(names)[:_MAX_DEFAULT_MEASURES]]


def compare(
    trials: Sequence[Trial], values: Sequence[Sequence[float | None]], measures: Sequence[Measure]
) -> list[Row]:
    """Rows in the order of the matrix. ``values`` has a number for each trial and measure, before any division."""
    groups: dict[str, list[int]] = {}
    for index, trial in enumerate(trials):
        groups.setdefault(json.dumps(trial.parameters, sort_keys=True), []).append(index)
    rows = [_mean_row(trials[group[0]].parameters, group, values, len(measures)) for group in groups.values()]
    return [_relative(row, rows, measures) for row in rows]


def best_of(rows: Sequence[Row], measures: Sequence[Measure]) -> list[list[int]]:
    """For each measure the indices of the rows that are best by it."""
    columns = [[row.values[column] for row in rows] for column in range(len(measures))]
    return [best_rows(values, measure.direction) for values, measure in zip(columns, measures, strict=True)]


def _mean_row(parameters: Parameters, group: list[int], values: Sequence[Sequence[float | None]], columns: int) -> Row:
    known = [[v for index in group if (v := values[index][column]) is not None] for column in range(columns)]
    means = [fmean(each) if each else None for each in known]
    return Row(parameters, group, means, [(min(each), max(each)) if len(each) > 1 else None for each in known])


def _relative(row: Row, rows: Sequence[Row], measures: Sequence[Measure]) -> Row:
    """``row`` with the relative measures divided by those of the rows that they refer to."""
    values, spread = list(row.values), list(row.spread)
    for column, measure in enumerate(measures):
        if measure.relative_to is not None:
            baseline = _baseline(row, rows, measure.relative_to)
            value, divisor = values[column], None if baseline is None else baseline.values[column]
            values[column] = value / divisor if value is not None and divisor else None
            spread[column] = None
    return replace(row, values=values, spread=spread)


def _baseline(row: Row, rows: Sequence[Row], relative_to: Parameters) -> Row | None:
    """The first row with the parameters ``relative_to`` that agrees with ``row`` in all others that both have."""
    for other in rows:
        shared = other.parameters.keys() & row.parameters.keys()
        expected = {key: row.parameters[key] for key in shared} | relative_to
        if expected.items() <= other.parameters.items():
            return other
    return None
