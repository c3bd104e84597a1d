"""`rekindle ps`: the list of jobs."""

from typing import Annotated

import typer
from rich.text import Text

from rekindle_service.cli.context import connect
from rekindle_service.cli.formatting import OutputOption, job_cells, out, print_answer, state_text, table
from rekindle_service.client import Job

_MAX_NAME = 24  # cells, on a terminal
_COLUMNS = ("#", "ID", "NAME", "OWNER", "STATE", "STEP", "LEFT", "RANKS", "RESTARTS", "STATUS")


def ps(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(help="Only jobs in this state.")] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs of this name.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only jobs of this person.")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of jobs.", min=1)] = 20,
    output: OutputOption = "table",
) -> None:
    """List jobs, latest first."""
    with connect(context) as client:
        jobs = list(client.jobs(state=state, name=name, owner=owner, limit=limit))
    if not print_answer(output, jobs, (job["id"] for job in jobs)):
        console, listed = out(), table(_COLUMNS, map(_row, jobs))
        if console.is_terminal:
            names = listed.columns[_COLUMNS.index("NAME")]
            names.no_wrap, names.overflow, names.max_width = True, "ellipsis", _MAX_NAME
        console.print(listed)


def _row(job: Job) -> list[str | Text]:
    cells = {**job_cells(job), "STATE": state_text(job["state"])}
    return [cells[column] for column in _COLUMNS]
