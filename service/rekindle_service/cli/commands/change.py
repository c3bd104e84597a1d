"""`rekindle cancel`, `drain`, `resume` and `delete`: change what becomes of jobs, named ones or all of a filter."""

from collections.abc import Callable
from dataclasses import dataclass

import typer

from rekindle.contract.states import TERMINAL
from rekindle_service.cli.context import JobsArgument, YesOption, connect
from rekindle_service.cli.exit_codes import ExitCode
from rekindle_service.cli.formatting import (
    Output,
    OutputOption,
    drain_loss,
    err,
    format_problem,
    job_name,
    note,
    out,
    print_answer,
)
from rekindle_service.cli.job_selection import (
    ExperimentOption,
    FilterOption,
    JobFilters,
    NameOption,
    OwnerOption,
    StateOption,
    confirmed,
    select,
)
from rekindle_service.cli.progress import counted
from rekindle_service.client import Client, Job, ProblemError
from rekindle_service.sanitize import sanitize_line

_MAX_LINES = 20  # jobs that are reported one by one


@dataclass(frozen=True, slots=True)
class _Change:
    """One request for each job; ``is_possible``: of which of the filtered jobs it makes sense."""

    request: Callable[[Client, str], Job | None]
    verb: str
    label: str
    done: str
    is_possible: Callable[[Job], bool]
    warning: str = ""


_CANCEL = _Change(Client.cancel, "Cancel", "cancelling", "being cancelled", lambda job: job["state"] not in TERMINAL)
_DRAIN = _Change(
    Client.drain,
    "Drain",
    "draining",
    "being drained",
    lambda job: job["state"] not in TERMINAL and job["intent"] == "run",
)
_RESUME = _Change(
    Client.resume, "Resume", "resuming", "resumed", lambda job: job["state"] in TERMINAL or job["intent"] != "run"
)
_DELETE = _Change(
    Client.delete, "Delete", "deleting", "deleted", lambda job: job["state"] in TERMINAL, " and their files"
)


def cancel(
    context: typer.Context,
    jobs: JobsArgument = None,
    state: StateOption = None,
    name: NameOption = None,
    owner: OwnerOption = None,
    experiment: ExperimentOption = None,
    text: FilterOption = None,
    yes: YesOption = False,
    output: OutputOption = "table",
) -> None:
    """Stop jobs; their snapshots and logs are kept, and `resume` can still continue them."""
    _apply(context, _CANCEL, jobs, JobFilters(state, name, owner, experiment, text), output, yes=yes)


def drain(
    context: typer.Context,
    jobs: JobsArgument = None,
    state: StateOption = None,
    name: NameOption = None,
    owner: OwnerOption = None,
    experiment: ExperimentOption = None,
    text: FilterOption = None,
    yes: YesOption = False,
    output: OutputOption = "table",
) -> None:
    """Save a snapshot at the next step, release the slots and hold the jobs in the queue until `resume`."""
    drained = _apply(context, _DRAIN, jobs, JobFilters(state, name, owner, experiment, text), output, yes=yes)
    if output == "table":
        for loss in filter(None, map(drain_loss, drained[:_MAX_LINES])):
            note(loss)


def resume(
    context: typer.Context,
    jobs: JobsArgument = None,
    state: StateOption = None,
    name: NameOption = None,
    owner: OwnerOption = None,
    experiment: ExperimentOption = None,
    text: FilterOption = None,
    yes: YesOption = False,
    output: OutputOption = "table",
) -> None:
    """Release held jobs, or continue ones that have ended from their latest snapshots."""
    _apply(context, _RESUME, jobs, JobFilters(state, name, owner, experiment, text), output, yes=yes)


def delete(
    context: typer.Context,
    jobs: JobsArgument = None,
    state: StateOption = None,
    name: NameOption = None,
    owner: OwnerOption = None,
    experiment: ExperimentOption = None,
    text: FilterOption = None,
    yes: YesOption = False,
    output: OutputOption = "table",
) -> None:
    """Delete finished jobs and their files: output, metrics, snapshots, and files in their working directories."""
    _apply(context, _DELETE, jobs, JobFilters(state, name, owner, experiment, text), output, yes=yes)


def _apply(
    context: typer.Context,
    change: _Change,
    references: list[str] | None,
    filters: JobFilters,
    output: Output,
    *,
    yes: bool,
) -> list[Job]:
    """Change each job, and return what became of them. Ends the command with an error where one was rejected."""
    with connect(context) as client:
        chosen = select(client, references or [], filters, change.is_possible)
        if not chosen:
            note("No job to change matches this filter.")
        elif (filters or change.warning) and not (yes or confirmed(chosen, _question(change, len(chosen)))):
            note("Nothing was changed.")
            return []
        changed, rejected = _requests(client, change, chosen, output)
    answer = changed[0] if changed and len(references or []) == 1 else changed
    if changed and not print_answer(output, answer, (job["id"] for job in changed)) and len(changed) > _MAX_LINES:
        out().print(f"{len(changed)} jobs are {change.done}")
    for error in rejected:
        err().print(format_problem(error.problem))
    if rejected:
        raise typer.Exit(ExitCode.USAGE)
    return changed


def _requests(
    client: Client, change: _Change, chosen: list[Job], output: Output
) -> tuple[list[Job], list[ProblemError]]:
    changed, rejected = [], []
    for job in counted(chosen, change.label):
        try:
            answer = change.request(client, job["id"])
        except ProblemError as error:
            rejected.append(error)
            continue
        changed.append(answer or job)
        if output == "table" and len(chosen) <= _MAX_LINES:
            now = "" if answer is None else f"; now {sanitize_line(answer['state'])}"
            out().print(f"{job_name(job)} is {change.done}{now}")
    return changed, rejected


def _question(change: _Change, count: int) -> str:
    what = "this job" if count == 1 else f"these {count} jobs"
    return f"{change.verb} {what}{change.warning}?"
