"""`rekindle cancel`, `drain` and `resume`: what is wanted of a job."""

from collections.abc import Callable

import typer

from rekindle_service.cli.output import Output, OutputOption, out, show_ids, show_json
from rekindle_service.cli.session import JobArgument, connect, find_job
from rekindle_service.client import Client, Job
from rekindle_service.sanitize import sanitize_line


def cancel(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """Stop a job for good; its snapshots and logs stay, and `resume` can still bring it back."""
    _ask(context, job, output, Client.cancel, "is being cancelled")


def drain(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """Save at the next step and go back to the queue, held until `resume`."""
    _ask(context, job, output, Client.drain, "is being drained")


def resume(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """Release a held job, or run a failed or cancelled one on from its newest snapshot."""
    _ask(context, job, output, Client.resume, "goes on")


def _ask(context: typer.Context, reference: str, output: Output, verb: Callable[[Client, str], Job], done: str) -> None:
    with connect(context) as client:
        job = verb(client, find_job(client, reference)["id"])
    match output:
        case Output.JSON:
            show_json(job)
        case Output.ID:
            show_ids([job["id"]])
        case Output.TABLE:
            out().print(f"{sanitize_line(job['name'])} (job {job['number']}) {done}; now {sanitize_line(job['state'])}")
