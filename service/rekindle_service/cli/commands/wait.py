"""`rekindle wait`, which `submit --follow` and `demo` share: show a job until it is settled."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from rekindle_service.cli import formatting
from rekindle_service.cli.commands.logs import print_logs
from rekindle_service.cli.context import JobArgument, connect
from rekindle_service.cli.exit_codes import ExitCode, exit_code_for
from rekindle_service.cli.output import Output, OutputOption, note, note_connection, out, print_job
from rekindle_service.client import Client, Job
from rekindle_service.sanitize import sanitize_line

_REPORTED_SHARE = 0.1  # a line for each tenth of the steps


def wait(context: typer.Context, job: JobArgument, output: OutputOption = "table") -> None:
    """Wait until a job has ended; the exit code reflects the outcome.

    0 succeeded, 1 failed, 3 cancelled, 4 drained and held; 2 wrong command or no server; 130 Ctrl-C.
    Neither Ctrl-C nor a restart of the server affects the job.
    """
    with connect(context) as client:
        raise typer.Exit(follow(client, client.find_job(job)["id"], output))


def follow(client: Client, job_id: str, output: Output = "table", *, with_logs: bool = False) -> ExitCode:
    """Show the job until it is settled, and what its ranks print; a program gets only its final state."""
    try:
        with job_display(output) as show:
            if with_logs and output == "table":
                print_logs(client, job_id, on_job=show)
            for job in client.watch(job_id, note_connection):
                show(job)
    except KeyboardInterrupt:
        note(f"The job keeps running. Wait for it again with: rekindle wait {job_id}")
        note(f"                           or read its output: rekindle logs -f {job_id}")
        return ExitCode.INTERRUPTED
    print_job(job, output, summary(job))
    return exit_code_for(job) or ExitCode.SUCCEEDED


def summary(job: Job) -> str:
    """The line that stays: ``digits succeeded after 2 attempts, in 3 min 2 s``."""
    started, ended = formatting.local_time(job["started_at"]), formatting.local_time(job["ended_at"])
    took = f", in {formatting.duration((ended - started).total_seconds())}" if started and ended else ""
    attempts = f" after {job['attempt']} attempts" if job["attempt"] > 1 else ""
    status = formatting.status_line(job)
    sentence = f"{sanitize_line(job['name'])} {formatting.state_name(job)}{attempts}{took}"
    return formatting.join([sentence, status], ": ")


def change_line(before: Job | None, job: Job) -> str | None:
    """A line when the state, the attempt or a tenth of the progress has changed, else None."""
    changed = before is None or any(before[key] != job[key] for key in ("state", "attempt", "next_try_at"))
    if not changed and _tenths(job) <= (_tenths(before) if before else 0):
        return None
    return formatting.join([sanitize_line(job["state"]), _details(job)], ": ")


def _details(job: Job) -> str:
    restarts = f"restarts {job['restarts']}" if job["restarts"] else ""
    return formatting.join([formatting.progress(job), restarts, formatting.status_line(job)])


def _tenths(job: Job) -> int:
    return int((job["progress"] or 0) / _REPORTED_SHARE + 1e-9)


@contextmanager
def job_display(output: Output = "table") -> Iterator[Callable[[Job], None]]:
    """A function that shows a job: nothing for a program, a bar on a terminal, else a line for each change."""
    if output != "table":
        yield lambda job: None
    elif not sys.stdout.isatty():
        reported: Job | None = None

        def print_change(job: Job) -> None:
            nonlocal reported
            line = change_line(reported, job)
            if line is not None:
                out().print(line)
                sys.stdout.flush()
                reported = job

        yield print_change
    else:
        columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        name, details = (TextColumn(f"{{task.fields[{field}]}}", markup=False) for field in ("job", "details"))
        with Progress(name, *columns, details, console=out(), transient=True) as bar:
            task = bar.add_task("", total=None, job="", details="")

            def show(job: Job) -> None:
                name = f"{sanitize_line(job['name'])} {sanitize_line(job['state'])}"
                bar.update(task, completed=job["step"] or 0, total=job["steps"], job=name, details=_details(job))

            yield show
