"""The tables of `rekindle experiment`, and the machine that an experiment was measured on."""

from rich.table import Table
from rich.text import Text

from rekindle_service.cli.formatting import ABSENT, clock, size, state_text, table
from rekindle_service.client import BuiltIn, Experiment, ExperimentSummary, Row
from rekindle_service.experiments.matrix import format_value
from rekindle_service.sanitize import sanitize_line


def comparison_table(experiment: Experiment) -> Table:
    """A row for each combination of parameters; states have a column unless all jobs succeeded."""
    headings = [*experiment["parameters"], *experiment["measures"]]
    all_succeeded = set(experiment["states"]) == {"succeeded"}
    columns = [sanitize_line(each) for each in headings] + ([] if all_succeeded else ["state"])
    return table(columns, [_cells(experiment, row, with_states=not all_succeeded) for row in experiment["rows"]])


def _cells(experiment: Experiment, row: Row, *, with_states: bool) -> list[str | Text]:
    parameters = [
        sanitize_line(format_value(row["parameters"][key])) if key in row["parameters"] else ""
        for key in experiment["parameters"]
    ]
    values = [value_text(*pair) for pair in zip(row["values"], row["spread"], strict=True)]
    if not with_states:
        return [*parameters, *values]
    states = dict.fromkeys(experiment["trials"][index]["state"] for index in row["trials"])
    return [*parameters, *values, Text(", ").join(state_text(state) for state in states)]


def value_text(value: float | None, spread: tuple[float, float] | None) -> str:
    """``0.9721``, or ``0.9721 (0.9694 to 0.9749)`` for the mean of several."""
    if value is None:
        return ABSENT
    return _number(value) + ("" if spread is None else f" ({_number(spread[0])} to {_number(spread[1])})")


def _number(value: float) -> str:
    """Four significant digits; a whole number in full."""
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"


def machine_line(experiment: Experiment) -> str:
    """``AMD EPYC, 2 cores, 8.2 GB, torch 2.11.0, load 0.4 at the start``."""
    machine = experiment["machine"]
    parts = [
        machine.get("processor", "unknown processor"),
        f"{machine.get('cores')} cores",
        size(machine.get("memory") or 0),
        *machine.get("gpus", []),
        f"torch {machine.get('torch')}",
        f"load {machine.get('load')} at the start",
    ]
    return sanitize_line(", ".join(map(str, parts)))


def builtin_table(builtins: list[BuiltIn]) -> Table:
    """One row per name, with its sizes and their numbers of jobs."""
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
    name, submitted = sanitize_line(one["name"]), clock(one["created_at"])
    return [str(one["number"]), one["id"], name, str(one["jobs"]), states, submitted]
