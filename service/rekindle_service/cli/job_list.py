"""`rekindle ps`."""

from typing import Annotated

import typer
from rich.text import Text

from rekindle_service.cli import wording
from rekindle_service.cli.output import Output, OutputOption, out, show_ids, show_json, state_text, table
from rekindle_service.cli.session import connect
from rekindle_service.client import Job
from rekindle_service.sanitize import sanitize_line

_LONGEST_NAME = 24  # cells, on a terminal
_COLUMNS = ("#", "ID", "NAME", "STATE", "STEP", "LEFT", "RANKS", "RESTARTS", "SITUATION")


def ps(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(help="Only jobs in this state.")] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs of this name.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 20,
    output: OutputOption = Output.TABLE,
) -> None:
    """List jobs, newest first."""
    with connect(context) as client:
        jobs = list(client.jobs(state=state, name=name, limit=limit))
    match output:
        case Output.JSON:
            show_json(jobs)
        case Output.ID:
            show_ids(job["id"] for job in jobs)
        case Output.TABLE:
            console, listed = out(), table(_COLUMNS, (_row(job) for job in jobs))
            if console.is_terminal:
                names = listed.columns[_COLUMNS.index("NAME")]
                names.no_wrap, names.overflow, names.max_width = True, "ellipsis", _LONGEST_NAME
            console.print(listed)


def _row(job: Job) -> list[str | Text]:
    of = "" if job["steps"] is None else f"/{job['steps']}"
    return [
        str(job["number"]),
        job["id"],
        sanitize_line(job["name"]),
        state_text(job["state"]),
        wording.ABSENT if job["step"] is None else f"{job['step']}{of}",
        wording.ABSENT if job["eta_seconds"] is None else wording.duration(job["eta_seconds"]),
        str(job["world_size"] or wording.wanted_ranks(job)),
        str(job["restarts"]),
        wording.situation(job),
    ]
