"""The table of an experiment and the machine that it was measured on, for a terminal."""

from rich.table import Table
from rich.text import Text

from rekindle_service.cli import wording
from rekindle_service.cli.output import state_text, table
from rekindle_service.client import BuiltIn, Experiment, ExperimentSummary, Row
from rekindle_service.experiments.matrix import format_value
from rekindle_service.sanitize import sanitize_line


def comparison(experiment: Experiment) -> Table:
    """A row for each combination of parameters; states that are not ``succeeded`` stand behind the values."""
    headings = [*experiment["parameters"], *experiment["measures"]]
    ended_well = set(experiment["states"]) == {"succeeded"}
    columns = [sanitize_line(each) for each in headings] + ([] if ended_well else ["state"])
    return table(columns, [_cells(experiment, row, with_states=not ended_well) for row in experiment["rows"]])


def _cells(experiment: Experiment, row: Row, *, with_states: bool) -> list[str | Text]:
    parameters = [_parameter(row, key) for key in experiment["parameters"]]
    values = [value_text(*pair) for pair in zip(row["values"], row["spread"], strict=True)]
    if not with_states:
        return [*parameters, *values]
    states = dict.fromkeys(experiment["trials"][index]["state"] for index in row["trials"])
    return [*parameters, *values, Text(", ").join(state_text(state) for state in states)]


def _parameter(row: Row, key: str) -> str:
    return sanitize_line(format_value(row["parameters"][key])) if key in row["parameters"] else ""


def value_text(value: float | None, spread: tuple[float, float] | None) -> str:
    """``0.9721``, or ``0.9721 (0.9694 to 0.9749)`` for the mean of several."""
    if value is None:
        return wording.ABSENT
    within = "" if spread is None else f" ({number(spread[0])} to {number(spread[1])})"
    return number(value) + within


def number(value: float) -> str:
    """Four digits that count; a whole number in full."""
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"


def machine_line(experiment: Experiment) -> str:
    """What was measured where: ``AMD EPYC, 2 cores, 8.2 GB, torch 2.11.0, load 0.4 when it began``."""
    machine = experiment["machine"]
    parts = [
        machine.get("processor", "unknown processor"),
        f"{machine.get('cores')} cores",
        wording.size(machine.get("memory") or 0),
        *machine.get("gpus", []),
        f"torch {machine.get('torch')}",
        f"load {machine.get('load')} when it began",
    ]
    return sanitize_line(", ".join(map(str, parts)))


def built_in_table(builtins: list[BuiltIn]) -> Table:
    """Sizes and numbers of jobs of one name in one row."""
    rows: dict[str, list[BuiltIn]] = {}
    for each in builtins:
        rows.setdefault(each["name"], []).append(each)
    sizes = {name: ", ".join(f"{one['size']} ({one['jobs']} jobs)" for one in each) for name, each in rows.items()}
    return table(("NAME", "SIZES", "COMPARES"), ((name, sizes[name], each[0]["title"]) for name, each in rows.items()))


def summary_table(experiments: list[ExperimentSummary]) -> Table:
    columns = ("#", "ID", "NAME", "JOBS", "STATES", "SUBMITTED")
    return table(columns, (_summary_row(each) for each in experiments))


def _summary_row(one: ExperimentSummary) -> list[str | Text]:
    states = ", ".join(f"{count} {sanitize_line(state)}" for state, count in one["states"].items())
    when = wording.clock(one["created_at"])
    return [str(one["number"]), one["id"], sanitize_line(one["name"]), str(one["jobs"]), states, when]
