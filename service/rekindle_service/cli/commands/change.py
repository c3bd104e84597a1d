"""`rekindle cancel`, `drain`, `resume` and `delete`: change what becomes of a job."""

import sys
from collections.abc import Callable

import typer

from rekindle_service.cli.context import JobArgument, JobsArgument, YesOption, connect
from rekindle_service.cli.formatting import Output, OutputOption, drain_loss, job_name, note, out, print_job
from rekindle_service.client import Client, Job
from rekindle_service.sanitize import sanitize_line


def cancel(context: typer.Context, job: JobArgument, output: OutputOption = "table") -> None:
    """Stop a job; its snapshots and logs are kept, and `resume` can still continue it."""
    _change(context, job, output, Client.cancel, "is being cancelled")


def drain(context: typer.Context, job: JobArgument, output: OutputOption = "table") -> None:
    """Save a snapshot at the next step, release the slots and hold the job in the queue until `resume`."""
    drained = _change(context, job, output, Client.drain, "is being drained")
    if output == "table" and (loss := drain_loss(drained)):
        note(loss)


def resume(context: typer.Context, job: JobArgument, output: OutputOption = "table") -> None:
    """Release a held job, or continue one that has ended from its latest snapshot."""
    _change(context, job, output, Client.resume, "resumes")


def _change(
    context: typer.Context, reference: str, output: Output, change: Callable[[Client, str], Job], done: str
) -> Job:
    with connect(context) as client:
        job = change(client, client.find_job(reference)["id"])
    print_job(job, output, f"{job_name(job)} {done}; now {sanitize_line(job['state'])}")
    return job


def delete(context: typer.Context, jobs: JobsArgument, yes: YesOption = False) -> None:
    """Delete finished jobs and their files: output, metrics, snapshots, and files in their working directories."""
    with connect(context) as client:
        found = {job["id"]: job for job in (client.find_job(each) for each in jobs)}
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
