"""`rekindle delete`: jobs that are over and not wanted any more."""

import sys
from typing import Annotated

import typer

from rekindle_service.cli.job_completion import complete_job
from rekindle_service.cli.output import note, out
from rekindle_service.cli.session import connect, find_job
from rekindle_service.client import Job
from rekindle_service.sanitize import sanitize_line


def delete(
    context: typer.Context,
    jobs: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB",
            help="Ids, beginnings of ids, numbers, or names (the newest of each).",
            autocompletion=complete_job,
        ),
    ],
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
) -> None:
    """Delete jobs that are over, with all they have written: output, metrics, snapshots, and files in their folders."""
    with connect(context) as client:
        found = {job["id"]: job for job in (find_job(client, each) for each in jobs)}
        if not yes and not _agreed(list(found.values())):
            note("Nothing was deleted.")
            return
        for job in found.values():
            client.delete(job["id"])
            out().print(f"{_named(job)} is deleted")


def _agreed(jobs: list[Job]) -> bool:
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody is there to be asked: add --yes")
    for job in jobs:
        note(f"{_named(job)}, {sanitize_line(job['state'])}")
    what = "it with all its files" if len(jobs) == 1 else f"these {len(jobs)} jobs with all their files"
    return typer.confirm(f"Delete {what}?", err=True)


def _named(job: Job) -> str:
    return f"{sanitize_line(job['name'])} (job {job['number']})"
