"""`rekindle cancel`, `drain`, `resume` and `delete`: change what becomes of jobs, named ones or all of a filter."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from rekindle.contract.states import TERMINAL, JobState
from rekindle_service.cli.context import FilterOption, JobsArgument, YesOption, connect
from rekindle_service.cli.formatting import drain_loss, job_name
from rekindle_service.cli.help_and_errors import format_problem, print_error
from rekindle_service.cli.terminal import (
    ExitCode,
    Output,
    OutputOption,
    confirm,
    counted,
    note,
    print_answer,
    print_line,
)
from rekindle_service.client import Client, Job, ProblemError

_MAX_JOBS = 10_000  # that a filter selects
_MAX_LINES = 20  # jobs that are reported one by one
_MAX_LISTED = 10  # jobs that a question lists
_MAX_DIGITS = 12  # of a step


@dataclass(frozen=True, slots=True)
class _Change:
    """One request for each job.

    ``is_possible``: True for the jobs of a filter for which it makes sense. ``deletes_files``: a person confirms it
    even for jobs that they have named. ``loss``: what a job loses by it, to be noted after it.
    """

    request: Callable[[Client, str], Job | None]
    verb: str
    present: str
    past: str
    is_possible: Callable[[Job], bool]
    deletes_files: bool = False
    loss: Callable[[Job], str] | None = None


def _is_live(job: Job) -> bool:
    return job["state"] not in TERMINAL


def _command(change: _Change, help_text: str) -> Callable[..., None]:
    """The command that makes the change to named jobs, or to all of a filter."""

    def command(
        context: typer.Context,
        jobs: JobsArgument = None,
        filter_line: FilterOption = None,
        yes: YesOption = False,
        output: OutputOption = "table",
    ) -> None:
        changed = _apply(context, change, jobs or [], filter_line, output, yes=yes)
        if change.loss is not None and output == "table":
            for loss in filter(None, map(change.loss, changed[:_MAX_LINES])):
                note(loss)

    command.__name__, command.__doc__ = change.verb.lower(), help_text
    return command


cancel = _command(
    _Change(Client.cancel, "Cancel", "Cancelling", "Cancelled", _is_live),
    """Cancel jobs; `rekindle resume` can still continue them.

    Their snapshots, logs and metrics are kept.
    """,
)
drain = _command(
    _Change(
        Client.drain,
        "Drain",
        "Draining",
        "Draining",
        lambda job: _is_live(job) and job["intent"] == "run",
        loss=drain_loss,
    ),
    """Save a snapshot, release the slots and hold the jobs in the queue.

    A job that runs saves at its next step. `rekindle resume` lets it continue.
    """,
)
_RESUME = _Change(
    lambda client, job_id: client.resume(job_id),
    "Resume",
    "Resuming",
    "Resumed",
    lambda job: job["intent"] != "run" if _is_live(job) else job["state"] != JobState.SUCCEEDED,
)


def resume(
    context: typer.Context,
    jobs: JobsArgument = None,
    filter_line: FilterOption = None,
    chosen: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="STEP|PATH",
            help="Step of a snapshot, or path of a checkpoint of the script, as `rekindle snapshots` lists them. Later "
            "ones are moved away. With one job. (default: the latest)",
        ),
    ] = None,
    yes: YesOption = False,
    output: OutputOption = "table",
) -> None:
    """Release held jobs; continue ended ones from their latest snapshots.

    A filter selects no job that has succeeded: name it to run it again.
    """
    if chosen is not None and len(jobs or []) != 1:
        raise typer.BadParameter("--from: name the one job that is to resume from it")
    _apply(context, _resume_from(chosen), jobs or [], filter_line, output, yes=yes)
    if chosen is not None and not chosen.isdecimal() and output == "table":
        note("Newer checkpoints are moved away, so a script that loads its latest one finds this one.")
        note("One that takes a path gets it if it was submitted with: --on-restart '--resume {checkpoint}'")


def _resume_from(chosen: str | None) -> _Change:
    """``chosen`` is the path of a listed checkpoint, or the step of a snapshot."""
    if chosen is None:
        return _RESUME
    by_step = chosen.isdecimal() and len(chosen) <= _MAX_DIGITS
    origin: dict[str, Any] = {"snapshot": int(chosen)} if by_step else {"checkpoint": chosen}
    return replace(_RESUME, request=lambda client, job_id: client.resume(job_id, **origin))


delete = _command(
    _Change(Client.delete, "Delete", "Deleting", "Deleted", lambda job: not _is_live(job), deletes_files=True),
    """Delete finished jobs and their files.

    Output, metrics, snapshots and everything in their working directories are deleted. It asks before, unless --yes.
    """,
)


def _apply(
    context: typer.Context,
    change: _Change,
    references: list[str],
    filter_line: str | None,
    output: Output,
    *,
    yes: bool,
) -> list[Job]:
    """Change each job, and return what became of them. Ends the command with an error where one was rejected."""
    with connect(context) as client:
        chosen = _select(client, references, filter_line, change.is_possible)
        if not chosen:
            note("No job to change matches this filter.")
        elif not (yes or (references and not change.deletes_files)):
            _confirm(change, chosen)
        changed, rejected = _requests(client, change, chosen, output)
    answer = changed[0] if changed and len(references) == 1 else changed
    if changed or not references:
        print_answer(output, answer, (job["id"] for job in changed))
    for error in rejected:
        print_error(format_problem(error.problem))
    if rejected:
        raise typer.Exit(ExitCode.USAGE)
    return changed


def _select(
    client: Client, references: list[str], filter_line: str | None, is_possible: Callable[[Job], bool]
) -> list[Job]:
    """The jobs that are named, each once; or those of the filter that ``is_possible`` is true of."""
    if bool(references) == (filter_line is not None):
        raise typer.BadParameter("name jobs, or select them with --filter, as in --filter 'state:failed resnet'")
    if filter_line is None:
        return list({job["id"]: job for job in map(client.find_job, references)}.values())
    found = list(client.jobs(q=filter_line, limit=_MAX_JOBS))
    if len(found) == _MAX_JOBS:
        note(f"These are the latest {_MAX_JOBS} jobs; repeat the command for the others.")
    return [job for job in found if is_possible(job)]


def _confirm(change: _Change, jobs: list[Job]) -> None:
    """Show the jobs, and ask a person: see ``confirm``."""
    for job in jobs[:_MAX_LISTED]:
        note(f"{job_name(job)}, {job['state']}")
    if len(jobs) > _MAX_LISTED:
        note(f"… and {len(jobs) - _MAX_LISTED} more")
    what, whose = ("this job", "its") if len(jobs) == 1 else (f"these {len(jobs)} jobs", "their")
    confirm(f"{change.verb} {what}" + (f" and {whose} files?" if change.deletes_files else "?"))


def _requests(
    client: Client, change: _Change, chosen: list[Job], output: Output
) -> tuple[list[Job], list[ProblemError]]:
    """Send the requests, and print what was changed after the bar, whatever ends this."""
    changed: list[Job] = []
    rejected: list[ProblemError] = []
    lines: list[str] = []
    try:
        for job in counted(chosen, change.present):
            try:
                answer = change.request(client, job["id"])
            except ProblemError as error:
                rejected.append(error)
                continue
            changed.append(answer or job)
            lines.append(f"{change.past} {job_name(job)}")
    finally:
        if output == "table":
            for line in lines if len(lines) <= _MAX_LINES else [f"{change.past} {len(lines)} jobs"]:
                print_line(line)
    return changed, rejected
