"""The table of an experiment: a row for each combination of parameters, a column for each measure. Pure."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

from rekindle.contract.field_texts import Described
from rekindle_service.experiments.trials import Parameters, Trial, format_value, label, shown_key

Goal = Literal["min", "max"]
Aggregation = Literal["last", "min", "max", "mean"]

_LOW = (
    "loss error err errors wer cer mse rmse mae mape nll bpc bpb perplexity ppl fid kl "
    "ms us ns s sec seconds time latency duration memory overhead"
)
_HIGH = (
    "acc accuracy acc1 acc5 top1 top5 f1 auc auroc precision recall map iou dice miou bleu rouge r2 score reward "
    "return psnr ssim snr mrr ndcg hits throughput speed goodput utilization"
)
_RATE = re.compile(r"(?:^|[^a-z])per[ _-]s(?:ec|econd)?(?:$|[^a-z])|/s(?:ec)?$")
_LOWER: Goal = "min"
_HIGHER: Goal = "max"
_GOALS = dict.fromkeys(_LOW.split(), _LOWER) | dict.fromkeys(_HIGH.split(), _HIGHER)
_WORD = re.compile(r"[a-z]+[0-9]*")
_MAX_DEFAULT_MEASURES = 12
_SINGLE_PRECISION = 1e-6  # relative: scripts compute most metrics in it


def guess_goal(metric: str) -> Goal | None:
    """Guess from the last word of the name that says it: ``val_loss`` is to be low, ``steps_per_second`` high."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", metric).lower()
    if _RATE.search(name):
        return "max"
    return next((_GOALS[word] for word in reversed(_WORD.findall(name)) if word in _GOALS), None)


def parse_goal(text: str) -> tuple[str, Goal]:
    """``-loss``: low is better; ``+gain``: high; ``accuracy``: as its name says. Raises ValueError: what to write."""
    metric = text[1:] if text[:1] in "-+" else text
    goal = _LOWER if text.startswith("-") else _HIGHER if text.startswith("+") else guess_goal(metric)
    if not metric.strip() or metric != metric.strip():
        raise ValueError("must be the name of a metric, as in loss, -my_cost or +my_gain")
    if goal is None:
        raise ValueError(f"write -{metric} if low values are better, +{metric} if high ones are: the name does not say")
    return metric, goal


def best_rows(values: Sequence[float | None], goal: Goal | None) -> list[int]:
    """The indices of the rows with the best value; none where there is no goal, or where no row is worse."""
    known = [value for value in values if value is not None]
    if goal is None or not known or min(known) == max(known):
        return []
    best = min(known) if goal == "min" else max(known)
    return [index for index, value in enumerate(values) if value == best]


@dataclass(frozen=True, slots=True)
class MeasureColumn:
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
class ComparisonRow(Described):
    """One combination of parameters."""

    parameters: Parameters
    """Values of the parameters."""
    trials: list[int]
    """Indices of its jobs in `trials`."""
    values: list[float | None]
    """Of each measure, the mean over the repeats; null where there is none."""
    spread: list[tuple[float, float] | None]
    """Of each measure, the minimum and maximum over the repeats; null where there are none."""


@dataclass(frozen=True, slots=True)
class BestResult(Described):
    """The result of an experiment in one line. Empty and null while no job has logged a measured metric."""

    text: str = ""
    """All of it in words."""
    measure: str | None = None
    """The first measure that is known to be better low or high, else the first one with a value."""
    goal: Goal | None = None
    """Whether low (`min`) or high (`max`) values are better; null if unknown."""
    best: float | None = None
    """The best value, in the unit of the metric; null if no row is better than another."""
    parameters: dict[str, Any] | None = None
    """The parameters of the first row with the best value."""
    low: float | None = None
    """The lowest value of all rows, each the mean of its repeats."""
    high: float | None = None
    """The highest value of all rows, each the mean of its repeats."""


def best_result(rows: Sequence[ComparisonRow], measures: Sequence[MeasureColumn]) -> BestResult:
    """The result by the first measure with a goal, else the first one with a value."""
    known = [column for column in range(len(measures)) if any(row.values[column] is not None for row in rows)]
    if not known:
        return BestResult()
    column = next((each for each in known if measures[each].direction), known[0])
    values = [row.values[column] for row in rows]
    numbers = [value for value in values if value is not None]
    measure = measures[column]
    best = next((rows[index] for index in best_rows(values, measure.direction)), None)
    value, parameters = (None, None) if best is None else (best.values[column], best.parameters)
    low, high = min(numbers), max(numbers)
    text = result_text(measure.heading, value, parameters or {}, low, high)
    return BestResult(text, measure.heading, measure.direction, value, parameters, low, high)


def default_measures(metrics: Iterable[Mapping[str, Any]]) -> list[MeasureColumn]:
    """The last value of the first metrics that the trials have logged, for an experiment that names no measure."""
    names = dict.fromkeys(name for each in metrics for name in each)
    return [MeasureColumn(name) for name in list(names)[:_MAX_DEFAULT_MEASURES]]


def compare(
    trials: Sequence[Trial], values: Sequence[Sequence[float | None]], measures: Sequence[MeasureColumn]
) -> list[ComparisonRow]:
    """Rows in the order of the matrix. ``values`` has a number for each trial and measure, before any division."""
    groups: dict[str, list[int]] = {}
    for index, trial in enumerate(trials):
        groups.setdefault(json.dumps(trial.parameters, sort_keys=True), []).append(index)
    rows = [_mean_row(trials[group[0]].parameters, group, values, len(measures)) for group in groups.values()]
    return [_relative(row, rows, measures) for row in rows]


def best_of(rows: Sequence[ComparisonRow], measures: Sequence[MeasureColumn]) -> list[list[int]]:
    """For each measure the indices of the rows that are best by it."""
    columns = [[row.values[column] for row in rows] for column in range(len(measures))]
    return [best_rows(values, measure.direction) for values, measure in zip(columns, measures, strict=True)]


def _mean_row(
    parameters: Parameters, group: list[int], values: Sequence[Sequence[float | None]], columns: int
) -> ComparisonRow:
    known = [[v for index in group if (v := values[index][column]) is not None] for column in range(columns)]
    means = [fmean(each) if each else None for each in known]
    return ComparisonRow(
        parameters, group, means, [(min(each), max(each)) if len(each) > 1 else None for each in known]
    )


def _relative(row: ComparisonRow, rows: Sequence[ComparisonRow], measures: Sequence[MeasureColumn]) -> ComparisonRow:
    """``row`` with the relative measures divided by those of the rows that they refer to."""
    values, spread = list(row.values), list(row.spread)
    for column, measure in enumerate(measures):
        if measure.relative_to is not None:
            baseline = _baseline(row, rows, measure.relative_to)
            value, divisor = values[column], None if baseline is None else baseline.values[column]
            values[column] = value / divisor if value is not None and divisor else None
            spread[column] = None
    return replace(row, values=values, spread=spread)


def _baseline(row: ComparisonRow, rows: Sequence[ComparisonRow], relative_to: Parameters) -> ComparisonRow | None:
    """The first row with the parameters ``relative_to`` that agrees with ``row`` in all others that both have."""
    for other in rows:
        shared = other.parameters.keys() & row.parameters.keys()
        expected = {key: row.parameters[key] for key in shared} | relative_to
        if expected.items() <= other.parameters.items():
            return other
    return None


def conclusion(
    rows: Sequence[ComparisonRow], measures: Sequence[MeasureColumn], subject: str, heading: str
) -> str | None:
    """Say in one sentence what the column ``heading`` shows about ``subject``, a parameter or another column.

    Rows are compared that agree in all other parameters which every row has; all of them where no two do. None where
    there is nothing to compare yet.
    """
    headings = [measure.heading for measure in measures]
    if heading not in headings:
        return None
    column = headings.index(heading)
    if subject in headings:
        return _agreement(rows, headings.index(subject), column, f"{subject} and {heading}")
    known = [row for row in rows if subject in row.parameters and row.values[column] is not None]
    if len(known) < 2:
        return None
    shared = set.intersection(*(set(row.parameters) for row in known)) - {subject}
    groups: dict[str, list[ComparisonRow]] = {}
    for row in known:
        groups.setdefault(json.dumps({key: row.parameters[key] for key in sorted(shared)}), []).append(row)
    compared = [group for group in groups.values() if len(group) > 1]
    return _ranking(compared or [known], column, measures[column], subject)


def _agreement(rows: Sequence[ComparisonRow], one: int, other: int, named: str) -> str | None:
    pairs = [(row, row.values[one], row.values[other]) for row in rows]
    known = [(label(row.parameters), mine, its) for row, mine, its in pairs if mine is not None and its is not None]
    differing = [name for name, mine, its in known if not math.isclose(mine, its, rel_tol=_SINGLE_PRECISION)]
    if not known:
        return None
    return f"{named} differ with {', '.join(differing)}." if differing else f"{named} are the same in every row."


def _ranking(groups: Sequence[Sequence[ComparisonRow]], column: int, measure: MeasureColumn, subject: str) -> str:
    """Say which value of ``subject`` is best in most of the groups, whose rows differ in nothing else."""
    ordered = [sorted(group, key=lambda row: row.values[column] or 0.0) for group in groups]
    if all(group[0].values[column] == group[-1].values[column] for group in ordered):
        return f"{measure.heading} is the same with every value of {subject}."
    ordered = [group for group in ordered if not _looks_equal(group[0].values[column], group[-1].values[column])]
    if not ordered:
        return f"{measure.heading} is the same, to four digits, with every value of {subject}."
    lowest_first = measure.direction == "min"
    pairs = [(group[0], group[-1]) if lowest_first else (group[-1], group[0]) for group in ordered]
    firsts = Counter(format_value(best.parameters[subject]) for best, _ in pairs)
    (value, times), superlative = firsts.most_common(1)[0], "lowest" if lowest_first else "highest"
    text = f"{measure.heading} is {superlative} with {subject} {value}"
    if len(groups) > 1:
        shown = "" if times > len(groups) / 2 else ": these runs do not show a difference"
        return f"{text} in {times} of {len(groups)} comparisons with otherwise the same parameters{shown}."
    (best, worst), *_ = pairs
    other = f"{text}, not {format_value(worst.parameters[subject])}"
    ranges = best.spread[column], worst.spread[column]
    if ranges[0] is None or ranges[1] is None:
        return f"{other}; a single run of each does not show whether that is chance."
    if max(low for low, _ in (ranges[0], ranges[1])) <= min(high for _, high in (ranges[0], ranges[1])):
        return f"{other}, but the ranges of the repeats overlap: these runs do not show a difference."
    return f"{other}, and the ranges of the repeats do not overlap."


def _looks_equal(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and significant(one) == significant(other)


def result_text(measure: str, best: float | None, parameters: Parameters, lowest: float, highest: float) -> str:
    """``best val_accuracy 0.97 with --lr 0.1; all 0.91 to 0.97``."""
    low, high = significant(lowest), significant(highest)
    if best is None:
        return f"{measure} {low}" if low == high else f"{measure} {low} to {high}"
    known = parameters.items()
    row = ", ".join(
        f"{shown_key(name)} {significant(v) if isinstance(v, float) else format_value(v)}" for name, v in known
    )
    return f"best {measure} {significant(best)}{row and f' with {row}'}; all {low} to {high}"


def significant(value: float) -> str:
    """Four significant digits; a whole number in full."""
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"
