"""Experiments as tables: a row for each combination of parameters, each experiment, each built-in one."""

from rich.text import Text

from rekindle_service.cli import formatting
from rekindle_service.cli.tables import Table
from rekindle_service.client import BuiltIn, Experiment, ExperimentSummary, Row
from rekindle_service.experiments.matrix import format_value
from rekindle_service.experiments.wording import significant
from rekindle_service.sanitize import sanitize_line


def comparison_table(experiment: Experiment) -> Table:
    """A row for each combination of parameters; states have a column unless all jobs succeeded.

    The rows of an array also name their jobs, and always show the states, with the failures if there are any.
    """
    headings = [sanitize_line(each) for each in (*experiment["parameters"], *experiment["measures"])]
    all_succeeded = set(experiment["states"]) == {"succeeded"}
    rows = [_cells(experiment, index, row) for index, row in enumerate(experiment["rows"])]
    if experiment["parameters"] != ["index"]:
        columns = headings + ([] if all_succeeded else ["state"])
        return Table(columns, [cells[: len(columns)] for cells in rows])
    columns = [*headings, "job", "state"] + ([] if all_succeeded else ["failure"])
    for cells, row in zip(rows, experiment["rows"], strict=True):
        number, failure = _job_cells(experiment, row)
        cells[-1:] = [number, cells[-1], failure][: len(columns) - len(headings)]
    return Table(columns, rows, cut={"failure": 20}, wrap="failure")


def _job_cells(experiment: Experiment, row: Row) -> tuple[str, str]:
    """The jobs of a row, and why the first of them that failed did."""
    trials = [experiment["trials"][index] for index in row["trials"]]
    failed = [each["outcome"] for each in trials if each["state"] == "failed" and each["outcome"] is not None]
    return ", ".join(f"#{each['number']}" for each in trials), formatting.outcome(failed[0]) if failed else ""


def _cells(experiment: Experiment, index: int, row: Row) -> list[str | Text]:
    parameters = [
        sanitize_line(format_value(row["parameters"][key])) if key in row["parameters"] else ""
        for key in experiment["parameters"]
    ]
    shown = [value_text(*pair) for pair in zip(row["values"], row["spread"], strict=True)]
    columns = zip(shown, experiment["best"], strict=True)
    values = [Text(f"{value} *", style="bold green") if index in best else value for value, best in columns]
    states = dict.fromkeys(experiment["trials"][index]["state"] for index in row["trials"])
    return [*parameters, *values, Text(", ").join(formatting.state_text(state) for state in states)]


def value_text(value: float | None, spread: tuple[float, float] | None) -> str:
    """``0.9721``, or ``0.9721 (0.9694 to 0.9749)`` for the mean of several."""
    if value is None:
        return formatting.ABSENT
    return significant(value) + ("" if spread is None else f" ({significant(spread[0])} to {significant(spread[1])})")


def machine_line(experiment: Experiment) -> str:
    """``AMD EPYC, 2 cores, 8.2 GB, torch 2.11.0, load 0.4 at the start``."""
    machine = experiment["machine"]
    parts = [
        machine.get("processor", "unknown processor"),
        f"{machine.get('cores')} cores",
        formatting.size(machine.get("memory") or 0),
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
    listed = ((name, sizes[name], each[0]["title"]) for name, each in rows.items())
    return Table(("NAME", "SIZES", "COMPARES"), listed, cut={"COMPARES": 30}, wrap="COMPARES")


def summary_table(experiments: list[ExperimentSummary]) -> Table:
    columns = ("#", "ID", "NAME", "JOBS", "STATES", "SUBMITTED")
    return Table(columns, map(_summary_row, experiments), cut={"NAME": 8, "STATES": 12}, drop=("SUBMITTED",))


def _summary_row(one: ExperimentSummary) -> list[str | Text]:
    states = ", ".join(f"{count} {sanitize_line(state)}" for state, count in one["states"].items())
    name, submitted = sanitize_line(one["name"]), formatting.clock(one["created_at"])
    return [str(one["number"]), one["id"], name, str(one["jobs"]), states, submitted]
