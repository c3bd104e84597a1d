"""`rekindle delete`: finished jobs that are no longer needed."""

import sys
from typing import Annotated

import typer

from rekindle_service.cli.context import YesOption, complete_job, connect, find_job
from rekindle_service.cli.formatting import job_name, note, out
from rekindle_service.client import Job
from rekindle_service.sanitize import sanitize_line


def delete(
    context: typer.Context,
    jobs: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB",
            help="Ids, prefixes of ids, numbers, or names (the latest job of each name).",
            autocompletion=complete_job,
        ),
    ],
    yes: YesOption = False,
) -> None:
    """Delete finished jobs and their files: output, metrics, snapshots, and files in their working directories."""
    with connect(context) as client:
        found = {job["id"]: job for job in (find_job(client, each) for each in jobs)}
        if not (yes or _confirmed(list(found.values()))):
            note("Nothing was deleted.")
            return
        for job in found.values():
            client.delete(job["id"])
            out().print(f"{job_name(job)} is deleted")


def _confirmed(jobs: list[Job]) -> bool:
    if not sys.stdin.isatty():
        raise typer.BadParameter("stdin is not a terminal; pass --yes")
    for job in jobs:
        note(f"{job_name(job)}, {sanitize_line(job['state'])}")
    what = "this job and its files" if len(jobs) == 1 else f"these {len(jobs)} jobs and their files"
    return typer.confirm(f"Delete {what}?", err=True)
