"""`rekindle ps`, `queue`, and `rekindle` without a command: lists of jobs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from rekindle.contract.states import JobState
from rekindle_service.cli import formatting
from rekindle_service.cli.context import FilterOption, connect
from rekindle_service.cli.formatting import ABSENT, job_cells, join, number_of, on_hold, start_time, state_text
from rekindle_service.cli.help_and_errors import format_error, print_error
from rekindle_service.cli.layout import Table, slot_bars
from rekindle_service.cli.terminal import ExitCode, Output, OutputOption, out, print_answer
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
from rekindle_service.client.answers import OwnerShare, Queue, QueuedJob

# --- all jobs

_PS_COLUMNS = ("#", "ID", "NAME", "OWNER", "STATE", "STEP", "LEFT", "ENDED", "RANKS", "RESTARTS", "STATUS")
_PS_CUT = {"NAME": 8, "STATUS": 20}  # cells
_STATE_HELP = f"Only jobs in this state: {', '.join(JobState)}. (default: all)"
_PS_DROP = ("OWNER", "RANKS", "RESTARTS", "LEFT", "ENDED", "STATUS")


def ps(
    context: typer.Context,
    state: Annotated[JobState | None, typer.Option(metavar="STATE", help=_STATE_HELP)] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs of exactly this name. (default: all)")] = None,
    owner: Annotated[str | None, typer.Option(help="Only jobs of this person. (default: all)")] = None,
    filter_line: FilterOption = None,
    limit: Annotated[int, typer.Option(help="Maximum number of jobs.", min=1)] = 20,
    output: OutputOption = "table",
) -> None:
    """List jobs, latest first."""
    with connect(context) as client:
        jobs = list(client.jobs(state=state, name=name, q=filter_line, owner=owner, limit=limit))
    if not print_answer(output, jobs, (job["id"] for job in jobs)):
        out().print(Table(_PS_COLUMNS, map(_ps_row, jobs), cut=_PS_CUT, drop=_PS_DROP))


def _ps_row(job: Job) -> list[str | Text]:
    held = {"STATE": state_text(job["state"])} if job["state"] == "queued" else {}  # as ``--state`` has it
    cells = {**job_cells(job), **held}
    return [cells[column] for column in _PS_COLUMNS]


# --- overview

_ROWS = 8  # of each section
_SECTIONS: Mapping[str, tuple[str, Sequence[str]]] = {
    "needs_you": ("Needs you", ("#", "ID", "NAME", "STATE", "SINCE", "WHY")),
    "running": ("Running", ("#", "ID", "NAME", "STATE", "STEP", "DONE", "LEFT", "WHY")),
    "next": ("Next", ("#", "ID", "NAME", "STARTS", "WHY")),
    "done": ("Done", ("#", "ID", "NAME", "STATE", "ENDED", "WHY")),
}
_OVERVIEW_CUT = {"NAME": 8, "WHY": 14}  # cells
_OVERVIEW_DROP = ("LEFT", "SINCE", "ENDED", "WHY", "DONE")


def overview(context: typer.Context, output: Output) -> None:
    """Print the four sections; each has its latest or next jobs, and a count of the others."""
    try:
        with connect(context) as client:
            found, devices = client.overview(limit=_ROWS), client.devices()["items"]
            if output == "table":
                found = {**found, "done": [_with_result(client, item) for item in found["done"]]}
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


def _with_result(client: Client, item: OverviewItem) -> OverviewItem:
    """Add the best result of an ended experiment as the reason."""
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
    alike = found.get("alike", {})
    items: Mapping[str, list[OverviewItem]] = {name: found[name] for name in _SECTIONS}  # type: ignore[literal-required]
    for name, (title, columns) in _SECTIONS.items():
        count = counts.get(name, len(items[name]))
        shown = f" ({count})" if name in counts and count else ""
        yield Text()
        yield Text(f"{title}{shown}", "bold") if items[name] else Text(f"{title}: nothing", "dim")
        if rows := [row_cells(_with_alike(item, alike)) for item in items[name]]:
            used = [column for column in columns if column != "WHY" or any(row["WHY"] for row in rows)]
            cells = [[row[column] for column in used] for row in rows]
            yield Table(used, cells, cut=_OVERVIEW_CUT, drop=_OVERVIEW_DROP)
        more = count - len(items[name]) - (sum(map(len, alike.values())) if name == "needs_you" else 0)
        if more > 0:
            yield Text(f"… and {more} more", "dim")


def _with_alike(item: OverviewItem, alike: Mapping[str, Sequence[Mapping[str, Any]]]) -> OverviewItem:
    """Name the other jobs that failed by the same exception at the same line."""
    others = alike.get(item["job"]["id"], ()) if item["job"] is not None else ()
    if not others:
        return item
    named = ", ".join(f"#{each['number']}" for each in others[:3]) + (", …" if len(others) > 3 else "")
    return item | {"reason": f"{len(others) + 1} jobs (also {named}): {item['reason']}"}


def row_cells(item: OverviewItem) -> dict[str, str | Text]:
    """What the sections show of a job, an experiment, a device or a notice, by the heading of the column."""
    since = formatting.since(item["at"])
    common: dict[str, str | Text] = {"WHY": item["reason"], "SINCE": since, "ENDED": since}
    if item["job"] is not None:
        return {**job_cells(item["job"]), **common}
    if item["experiment"] is not None:
        return {**common, **_experiment_cells(item["experiment"], item["reason"])}
    name = item["device"] or item["kind"]
    return {**common, "#": ABSENT, "ID": ABSENT, "NAME": name, "STATE": Text("not usable", "yellow")}


def _experiment_cells(experiment: ExperimentSummary, result: str) -> dict[str, str | Text]:
    states = ", ".join(f"{count} {state}" for state, count in experiment["states"].items())
    why = "; ".join(filter(None, (result, states)))
    name = f"{experiment['name']}, {number_of(experiment['jobs'], 'job')}"
    return {"#": f"E{experiment['number']}", "ID": experiment["id"], "NAME": name, "STATE": "experiment", "WHY": why}


# --- queue

_QUEUE_COLUMNS = ("POS", "#", "JOB", "OWNER", "PRIORITY", "SLOTS", "STARTS")
_QUEUE_CUT = {"JOB": 12, "OWNER": 8}  # cells
_HOUR = 3600.0
_MAX_KIND = 6  # cells


def queue(
    context: typer.Context,
    owner: Annotated[str | None, typer.Option(help="Only jobs of this person. (default: all)")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of jobs.", min=1, max=200)] = 20,
    output: OutputOption = "table",
) -> None:
    """List the queue, next job first, and why each job waits.

    Below it stands what each owner has used.
    """
    with connect(context) as client:
        found = client.queue(owner=owner, limit=limit)
    if print_answer(output, found, (job["job"] for job in found["items"])):
        return
    for part in queue_parts(found):
        out().print(part)


def queue_parts(found: Queue) -> Iterator[RenderableType]:
    """The position of each job, why it waits, and what each owner has used."""
    if not found["items"]:
        yield Text("No job waits in the queue.")
    else:
        reasons = [reason(job) for job in found["items"]]
        yield Table(_QUEUE_COLUMNS, map(_queue_row, found["items"]), cut=_QUEUE_CUT, drop=("PRIORITY",), below=reasons)
    if found["next"] is not None:
        yield Text(f"{len(found['items'])} of {found['queued']} queued jobs; --limit shows more", "dim")
    if found["owners"]:
        yield Text()
        yield owner_table(found)
        yield Text(half_life(found), "dim")


def _queue_row(job: QueuedJob) -> list[str]:
    kind = job["device"].partition(":")[0][:_MAX_KIND]
    return [
        ABSENT if job["position"] is None else str(job["position"]),
        str(job["number"]),
        job["name"],
        job["owner"],
        str(job["priority"]),
        f"{job['slots']:g} {kind}" if job["slots"] else kind,
        start_time(job["estimated_start_at"]),
    ]


def reason(job: QueuedJob) -> str:
    """``waiting for 3 CPU slots, 1 free; preempted twice``."""
    why = on_hold(job["name"]) if job["intent"] == "hold" else job["reason"]
    return join([why, formatting.preempted(job)])


def owner_table(found: Queue) -> Table:
    """Who has used least comes first, as in the queue."""
    columns = ("OWNER", "SHARE", "SLOT-HOURS", "SLOTS", "RUNNING", "QUEUED", "LIMITS")
    return Table(columns, map(_owner_row, found["owners"]), cut={"OWNER": 8, "LIMITS": 12}, wrap="LIMITS")


def _owner_row(owner: OwnerShare) -> list[str | Text]:
    slots = "" if owner["max_slots"] is None else number_of(owner["max_slots"], "slot")
    queued = "" if owner["max_queued"] is None else f"{owner['max_queued']} queued"
    return [
        owner["owner"],
        f"{owner['share']:.0%}",
        f"{owner['slot_seconds'] / _HOUR:.2f}",
        f"{owner['slots']:g}",
        str(owner["running"]),
        str(owner["queued"]),
        join([slots, queued], ", ") or ABSENT,
    ]


def half_life(found: Queue) -> str:
    days = found["half_life_days"]
    unit = "day" if days == 1 else "days"
    return f"Slot-hours count half after {days:g} {unit}; who has used least starts first."
