"""Which jobs a command changes: those that it names, or all that its filters select."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer
from typer import Option

from rekindle_service.cli.commands.experiment import find_experiment
from rekindle_service.cli.formatting import job_name, note
from rekindle_service.client import Client, Job
from rekindle_service.sanitize import sanitize_line

StateOption = Annotated[str | None, Option(help="Only jobs in this state.")]
NameOption = Annotated[str | None, Option(help="Only jobs of this name.")]
OwnerOption = Annotated[str | None, Option(help="Only jobs of this person.")]
FilterOption = Annotated[str | None, Option("--filter", metavar="TEXT", help="Only jobs whose name contains this.")]
ExperimentOption = Annotated[
    str | None, Option(metavar="EXPERIMENT", help="Only jobs of this experiment, by id, number or name.")
]

_MAX_JOBS = 10_000
_MAX_LISTED = 10
_FILTERS = "--state, --name, --owner, --experiment or --filter"


@dataclass(frozen=True, slots=True)
class JobFilters:
    """The values of the options above."""

    state: str | None = None
    name: str | None = None
    owner: str | None = None
    experiment: str | None = None
    text: str | None = None

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.state, self.name, self.owner, self.experiment, self.text))

    def jobs(self, client: Client, limit: int) -> list[Job]:
        """At most ``limit`` jobs, latest first."""
        within = None if self.experiment is None else find_experiment(client, self.experiment)["id"]
        chosen = client.jobs(
            state=self.state, name=self.name, owner=self.owner, experiment=within, q=self.text, limit=limit
        )
        return list(chosen)


def select(client: Client, references: list[str], filters: JobFilters, is_possible: Callable[[Job], bool]) -> list[Job]:
    """The jobs that are named, each once; or those that the filters select and that ``is_possible`` is true of."""
    if references and filters:
        raise typer.BadParameter(f"name jobs, or select them with {_FILTERS}, not both")
    if references:
        return list({job["id"]: job for job in (client.find_job(each) for each in references)}.values())
    if not filters:
        raise typer.BadParameter(f"name a job, or select jobs with {_FILTERS}")
    found = filters.jobs(client, _MAX_JOBS)
    if len(found) == _MAX_JOBS:
        note(f"These are the latest {_MAX_JOBS} jobs; repeat the command for the others.")
    return [job for job in found if is_possible(job)]


def confirmed(jobs: list[Job], question: str) -> bool:
    """Whether a person agrees to ``question`` about ``jobs``. Raises BadParameter where nobody can be asked."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("stdin is not a terminal; pass --yes")
    for job in jobs[:_MAX_LISTED]:
        note(f"{job_name(job)}, {sanitize_line(job['state'])}")
    if len(jobs) > _MAX_LISTED:
        note(f"… and {len(jobs) - _MAX_LISTED} more")
    return typer.confirm(question, err=True)
