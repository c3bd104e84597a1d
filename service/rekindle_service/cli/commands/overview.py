"""`rekindle` without a command: what needs you, what runs, what is next, what has ended; fits 80 columns."""

from collections.abc import Iterator, Mapping, Sequence

import typer
from rich.console import RenderableType
from rich.text import Text

from rekindle_service.cli import formatting
from rekindle_service.cli.bars import progress_bar, slot_bars
from rekindle_service.cli.context import connect
from rekindle_service.cli.errors import format_error, print_error
from rekindle_service.cli.exit_codes import ExitCode
from rekindle_service.cli.formatting import ABSENT
from rekindle_service.cli.output import Output, out, print_answer
from rekindle_service.cli.tables import Table
from rekindle_service.client import (
    Client,
    Device,
    ExperimentSummary,
    Job,
    NoServerError,
    Overview,
    OverviewItem,
    ProblemError,
)
from rekindle_service.sanitize import sanitize_line

_ROWS = 8  # of each section
_SECTIONS: Mapping[str, tuple[str, Sequence[str]]] = {
    "needs_you": ("Needs you", ("#", "ID", "NAME", "STATE", "SINCE", "WHY")),
    "running": ("Running", ("#", "ID", "NAME", "STATE", "STEP", "DONE", "LEFT", "WHY")),
    "next": ("Next", ("#", "ID", "NAME", "STARTS", "WHY")),
    "done": ("Done", ("#", "ID", "NAME", "STATE", "ENDED", "WHY")),
}
_CUT = {"NAME": 8, "WHY": 14}  # cells
_DROP = ("LEFT", "SINCE", "ENDED", "WHY", "DONE")


def overview(context: typer.Context, output: Output) -> None:
    """Print the four sections; each has its latest or next jobs, and a count of the others."""
    try:
        with connect(context) as client:
            found, devices = client.overview(limit=_ROWS), client.devices()["items"]
            if output == "table":
                found = _with_results(client, found)
    except NoServerError as error:
        print_error(
            format_error(str(error), "Start one with: rekindle serve", "List the commands with: rekindle --help")
        )
        raise typer.Exit(ExitCode.USAGE) from None
    listed = [item for name in _SECTIONS for item in found[name]]  # type: ignore[literal-required]
    if print_answer(output, {**found, "devices": devices}, (item["job"]["id"] for item in listed if item["job"])):
        return
    console = out()
    for part in sections(found, devices):
        console.print(part)
    console.print(Text("rekindle --help lists the commands", "dim"))


def _with_results(client: Client, found: Overview) -> Overview:
    """With the best result of each ended experiment before the states of its jobs."""
    return {**found, "done": [_with_result(client, item) for item in found["done"]]}


def _with_result(client: Client, item: OverviewItem) -> OverviewItem:
    experiment = item["experiment"]
    if experiment is None or not experiment["over"]:
        return item
    try:
        text = client.best_result(experiment["id"])["text"]
    except ProblemError:  # it has just been deleted
        return item
    return item | {"reason": text}


def sections(found: Overview, devices: Sequence[Device]) -> Iterator[RenderableType]:
    """Lines and tables, from what needs a person to what has ended."""
    yield from slot_bars(devices)
    counts: Mapping[str, int] = {**found["counts"]}  # type: ignore[dict-item]
    items: Mapping[str, list[OverviewItem]] = {name: found[name] for name in _SECTIONS}  # type: ignore[literal-required]
    for name, (title, columns) in _SECTIONS.items():
        count = counts.get(name, len(items[name]))
        shown = f" ({count})" if name in counts and count else ""
        yield Text()
        yield Text(f"{title}{shown}", "bold") if items[name] else Text(f"{title}: nothing", "dim")
        if items[name]:
            yield _table(columns, [row_cells(item) for item in items[name]])
        if count > len(items[name]):
            yield Text(f"… and {count - len(items[name])} more", "dim")


def _table(columns: Sequence[str], rows: list[dict[str, str | Text]]) -> Table:
    """Without the reasons where there is none."""
    shown = [column for column in columns if column != "WHY" or any(row["WHY"] for row in rows)]
    return Table(shown, [[row[column] for column in shown] for row in rows], cut=_CUT, drop=_DROP)


def row_cells(item: OverviewItem) -> dict[str, str | Text]:
    """What the sections show of a job, an experiment, a device or a notice, by the heading of the column."""
    since = " ".join(formatting.age(item["at"]).split()[:2])  # 16 min, without the seconds
    common: dict[str, str | Text] = {"WHY": sanitize_line(item["reason"]), "SINCE": since, "ENDED": since}
    if item["job"] is not None:
        return {**_job_cells(item["job"]), **common}
    if item["experiment"] is not None:
        return {**common, **_experiment_cells(item["experiment"], item["reason"])}
    name = sanitize_line(item["device"] or item["kind"])
    return {**common, "#": ABSENT, "ID": ABSENT, "NAME": name, "STATE": Text("not usable", "yellow")}


def _job_cells(job: Job) -> dict[str, str | Text]:
    starts = formatting.start_time(job["estimated_start_at"])
    return {**formatting.job_cells(job), "DONE": progress_bar(job["progress"]), "STARTS": starts}


def _experiment_cells(experiment: ExperimentSummary, result: str) -> dict[str, str | Text]:
    states = ", ".join(f"{count} {sanitize_line(state)}" for state, count in experiment["states"].items())
    why = "; ".join(filter(None, (sanitize_line(result), states)))
    name = f"{sanitize_line(experiment['name'])}, {experiment['jobs']} jobs"
    return {"#": f"E{experiment['number']}", "ID": experiment["id"], "NAME": name, "STATE": "experiment", "WHY": why}
