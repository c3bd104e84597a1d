"""The table of an experiment: a row for each combination of parameters, a column for each measure. Pure."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rekindle_service.experiments.matrix import Parameters, Trial, label

Take = Literal["last", "lowest", "highest", "mean"]

_MOST_FOUND = 12  # measures, where the experiment names none


@dataclass(frozen=True, slots=True)
class Measure:
    """A column: which metric, which of its values, and by what it is divided.

    ``relative_to`` names parameters of another row: the one that has these values and agrees in all other parameters
    that both have.
    """

    metric: str
    take: Take = "last"
    relative_to: Parameters | None = None
    title: str | None = None

    @property
    def heading(self) -> str:
        value = self.metric if self.take == "last" else f"{self.take} {self.metric}"
        return self.title or (value if self.relative_to is None else f"{value} / {label(self.relative_to)}")

    def of(self, values: Sequence[float | None]) -> float | None:
        """The one number of a series; None where it has none."""
        finite = [value for value in values if value is not None]
        if self.take == "last":
            return values[-1] if values else None
        return _TAKES[self.take](finite) if finite else None


_TAKES: dict[str, Callable[[list[float]], float]] = {
    "lowest": min,
    "highest": max,
    "mean": lambda values: sum(values) / len(values),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One combination of parameters; a value is the mean of its repeats, ``spread`` their lowest and highest."""

    parameters: Parameters
    trials: list[int]  # indices
    values: list[float | None] = field(default_factory=list)
    spread: list[tuple[float, float] | None] = field(default_factory=list)


def default_measures(metrics: Iterable[Mapping[str, Any]]) -> list[Measure]:
    """The last value of every metric that any cell has logged, for an experiment that names no measure."""
    names = dict.fromkeys(name for each in metrics for name in each)
    return [Measure(name) for name in list(names)[:_MOST_FOUND]]


def compare(
    trials: Sequence[Trial], values: Sequence[Sequence[float | None]], measures: Sequence[Measure]
) -> list[Row]:
    """Rows in the order of the matrix. ``values`` has a number for each cell and measure, before any division."""
    groups: dict[str, list[int]] = {}
    for index, trial in enumerate(trials):
        groups.setdefault(json.dumps(trial.parameters, sort_keys=True), []).append(index)
    rows = [_row(trials[members[0]].parameters, members, values, len(measures)) for members in groups.values()]
    return [_divided(row, rows, measures) for row in rows]


def _row(parameters: Parameters, members: list[int], values: Sequence[Sequence[float | None]], columns: int) -> Row:
    row = Row(parameters, members)
    for column in range(columns):
        told = [value for index in members if (value := values[index][column]) is not None]
        row.values.append(sum(told) / len(told) if told else None)
        row.spread.append((min(told), max(told)) if len(told) > 1 else None)
    return row


def _divided(row: Row, rows: Sequence[Row], measures: Sequence[Measure]) -> Row:
    """``row`` with the relative measures divided by those of the rows that they refer to."""
    divided = Row(row.parameters, row.trials)
    for column, measure in enumerate(measures):
        value, spread = row.values[column], row.spread[column]
        if measure.relative_to is not None:
            reference = _reference(row, rows, measure.relative_to)
            divisor = None if reference is None else reference.values[column]
            value = value / divisor if value is not None and divisor else None
            spread = None
        divided.values.append(value)
        divided.spread.append(spread)
    return divided


def _reference(row: Row, rows: Sequence[Row], wanted: Parameters) -> Row | None:
    def fits(other: Row) -> bool:
        shared = other.parameters.keys() & row.parameters.keys() - wanted.keys()
        return all(key in other.parameters and other.parameters[key] == value for key, value in wanted.items()) and all(
            other.parameters[key] == row.parameters[key] for key in shared
        )

    return next(filter(fits, rows), None)
