"""`rekindle ps`: the list of jobs."""

from typing import Annotated

import typer
from rich.text import Text

from rekindle_service.cli.context import connect
from rekindle_service.cli.formatting import OutputOption, job_cells, out, print_answer, state_text
from rekindle_service.cli.job_selection import (
    ExperimentOption,
    FilterOption,
    JobFilters,
    NameOption,
    OwnerOption,
    StateOption,
)
from rekindle_service.cli.tables import Table
from rekindle_service.client import Job

_COLUMNS = ("#", "ID", "NAME", "OWNER", "STATE", "STEP", "LEFT", "RANKS", "RESTARTS", "STATUS")
_CUT = {"NAME": 8, "STATUS": 12}  # cells
_DROP = ("OWNER", "RANKS", "RESTARTS", "LEFT", "STATUS")


def ps(
    context: typer.Context,
    state: StateOption = None,
    name: NameOption = None,
    owner: OwnerOption = None,
    experiment: ExperimentOption = None,
    text: FilterOption = None,
    limit: Annotated[int, typer.Option(help="Maximum number of jobs.", min=1)] = 20,
    output: OutputOption = "table",
) -> None:
    """List jobs, latest first."""
    with connect(context) as client:
        jobs = JobFilters(state, name, owner, experiment, text).jobs(client, limit)
    if not print_answer(output, jobs, (job["id"] for job in jobs)):
        out().print(Table(_COLUMNS, map(_row, jobs), cut=_CUT, drop=_DROP))


def _row(job: Job) -> list[str | Text]:
    cells = {**job_cells(job), "STATE": state_text(job["state"])}
    return [cells[column] for column in _COLUMNS]
