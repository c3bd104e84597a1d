"""`rekindle cancel`, `drain` and `resume`: change the intent for a job."""

from collections.abc import Callable

import typer

from rekindle_service.cli.context import JobArgument, connect, find_job
from rekindle_service.cli.formatting import Output, OutputOption, job_name, print_job
from rekindle_service.client import Client, Job
from rekindle_service.sanitize import sanitize_line


def cancel(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """Stop a job; its snapshots and logs are kept, and `resume` can still continue it."""
    _change(context, job, output, Client.cancel, "is being cancelled")


def drain(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """Save a snapshot at the next step, release the slots and hold the job in the queue until `resume`."""
    _change(context, job, output, Client.drain, "is being drained")


def resume(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """Release a held job, or continue a failed or cancelled one from its latest snapshot."""
    _change(context, job, output, Client.resume, "resumes")


def _change(
    context: typer.Context, reference: str, output: Output, change: Callable[[Client, str], Job], done: str
) -> None:
    with connect(context) as client:
        job = change(client, find_job(client, reference)["id"])
    print_job(job, output, f"{job_name(job)} {done}; now {sanitize_line(job['state'])}")
