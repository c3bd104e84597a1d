"""`rekindle ps`: the list of jobs."""

from typing import Annotated

import typer
from rich.text import Text

from rekindle.contract.states import JobState
from rekindle_service.cli.context import FilterOption, connect
from rekindle_service.cli.formatting import job_cells, state_text
from rekindle_service.cli.output import OutputOption, out, print_answer
from rekindle_service.cli.tables import Table
from rekindle_service.client import Job

_COLUMNS = ("#", "ID", "NAME", "OWNER", "STATE", "STEP", "LEFT", "RANKS", "RESTARTS", "STATUS")
_CUT = {"NAME": 8, "STATUS": 20}  # cells
_STATE_HELP = f"Only jobs in this state: {', '.join(JobState)}. (default: all)"
_DROP = ("OWNER", "RANKS", "RESTARTS", "LEFT", "STATUS")


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
        out().print(Table(_COLUMNS, map(_row, jobs), cut=_CUT, drop=_DROP))


def _row(job: Job) -> list[str | Text]:
    held = {"STATE": state_text(job["state"])} if job["state"] == "queued" else {}  # as ``--state`` has it
    cells = {**job_cells(job), **held}
    return [cells[column] for column in _COLUMNS]
