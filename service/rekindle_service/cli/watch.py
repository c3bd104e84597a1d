"""`rekindle wait`, and the watching half of `submit --follow`: until the job's fate is known."""

import sys
from typing import Protocol, Self

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from rekindle_service.cli import wording
from rekindle_service.cli.exit_codes import ExitCode, fate
from rekindle_service.cli.output import Output, OutputOption, note, out, show_ids, show_json
from rekindle_service.cli.patience import teller
from rekindle_service.cli.session import JobArgument, connect, find_job
from rekindle_service.client import Client, Job
from rekindle_service.sanitize import sanitize_line

_PLAIN_SHARE = 0.1  # a plain line for each tenth of the way


def wait(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """Wait until a job has ended, and exit with its fate.

    0 succeeded, 1 failed, 3 cancelled, 4 drained and held; 2 for a wrong command or no server. Ctrl-C (130) leaves
    the job alone, and so does a restart of the server.
    """
    with connect(context) as client:
        raise typer.Exit(follow(client, find_job(client, job)["id"], output))


def follow(client: Client, job_id: str, output: Output = Output.TABLE) -> ExitCode:
    """Show where the job is until nothing more will happen by itself; to a program only how it stands then."""
    try:
        with job_display(output) as display:
            for job in client.watch(job_id, teller(note)):
                display.show(job)
    except KeyboardInterrupt:
        note(f"The job goes on. Come back with: rekindle wait {job_id}")
        note(f"                 or read its output: rekindle logs -f {job_id}")
        return ExitCode.INTERRUPTED
    match output:
        case Output.JSON:
            show_json(job)
        case Output.ID:
            show_ids([job_id])
        case Output.TABLE:
            out().print(last_word(job))
    return fate(job) or ExitCode.SUCCEEDED


def last_word(job: Job) -> str:
    """The one line that stays: ``digits succeeded after 2 attempts and 1 restart, in 3 min 2 s``."""
    begun, ended = wording.local_time(job["started_at"]), wording.local_time(job["ended_at"])
    took = "" if begun is None or ended is None else f", in {wording.duration((ended - begun).total_seconds())}"
    tries = f" after {job['attempt']} attempts" if job["attempt"] > 1 else ""
    why = wording.situation(job)
    state = "held" if fate(job) is ExitCode.HELD else job["state"]
    return f"{sanitize_line(job['name'])} {sanitize_line(state)}{tries}{took}" + (f": {why}" if why else "")


def plain_report(before: Job | None, job: Job) -> str | None:
    """A line when something has changed that a person would tell, else None."""
    moved = before is None or any(before[key] != job[key] for key in ("state", "attempt", "next_try_at"))
    further = _tenths(job) > (_tenths(before) if before is not None else 0)
    if not moved and not further:
        return None
    restarts = f"restarts {job['restarts']}" if job["restarts"] else ""
    parts = [wording.steps(job), restarts, wording.situation(job)]
    details = "; ".join(part for part in parts if part)
    return f"{sanitize_line(job['state'])}: {details}" if details else sanitize_line(job["state"])


def _tenths(job: Job) -> int:
    return int((job["progress"] or 0) / _PLAIN_SHARE + 1e-9)


def job_display(output: Output = Output.TABLE) -> "JobDisplay":
    """The display that suits standard output."""
    if output is not Output.TABLE:
        return Unseen()
    return JobBar() if sys.stdout.isatty() else JobLines()


class JobDisplay(Protocol):
    """Where the looks of a job go."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...
    def show(self, job: Job) -> None: ...


class Unseen:
    """For a program, which reads nothing but the answer."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def show(self, job: Job) -> None:
        return


class JobLines:
    """For a file, a pipe or CI: a line for each change."""

    def __init__(self) -> None:
        self._told: Job | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def show(self, job: Job) -> None:
        line = plain_report(self._told, job)
        if line is not None:
            out().print(line)
            sys.stdout.flush()
            self._told = job


class JobBar:
    """For a terminal: one line that moves."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.fields[job]}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[situation]}", markup=False),
            console=out(),
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, job="", situation="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def show(self, job: Job) -> None:
        parts = [wording.steps(job), f"restarts {job['restarts']}" if job["restarts"] else "", wording.situation(job)]
        self._progress.update(
            self._task,
            completed=job["step"] or 0,
            total=job["steps"],
            job=f"{sanitize_line(job['name'])} {sanitize_line(job['state'])}",
            situation="; ".join(part for part in parts if part),
        )
