"""From the command line's arguments to a server and a job."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError

from rekindle_service.cli.job_completion import complete_job
from rekindle_service.client import Client, FieldProblem, Job, ProblemError
from rekindle_service.config.settings import Settings
from rekindle_service.sanitize import sanitize_line
from rekindle_service.suggestions import did_you_mean

_SEARCHED_JOBS = 500
_SHORTEST_PREFIX = 4
_SECRET = ("notify", "token")  # settings whose values are not shown

JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="Id, beginning of an id, number, or name (the newest of that name).",
        autocompletion=complete_job,
    ),
]


@dataclass(frozen=True, slots=True)
class Invocation:
    """The options that stand before the verb."""

    home: Path | None = None
    url: str | None = None


def settings_of(context: typer.Context, **flags: Any) -> Settings:
    """The settings of this invocation; flags that were not given are None. Raises ProblemError for a wrong one."""
    invocation = context.ensure_object(Invocation)
    before_the_verb = _given({"home": invocation.home, "url": invocation.url})
    try:
        settings = Settings(**(before_the_verb | _given(flags)))
    except ValidationError as error:
        wrong = [_wrong_setting(each) for each in error.errors(include_url=False)]
        raise ProblemError({"title": "Wrong settings", "detail": "The settings are wrong", "errors": wrong}) from error
    except SettingsError as error:
        raise ProblemError({"title": "Wrong settings", "detail": str(error)}) from error
    _require_folder(settings.home)
    return settings


def _require_folder(home: Path) -> None:
    """Raises ProblemError for a home that is no folder; one that is not there yet is made by the server."""
    try:
        fit = home.is_dir() or not home.exists()
    except OSError:
        fit = False
    if not fit:
        hint = "--home or REKINDLE_HOME names another"
        wrong: FieldProblem = {"field": "home", "rule": "must be a folder", "value": str(home), "hint": hint}
        raise ProblemError({"title": "Wrong settings", "detail": "The home is no folder", "errors": [wrong]})


def _given(flags: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}


def _wrong_setting(error: ErrorDetails) -> FieldProblem:
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden" and name.isidentifier():
        meant = did_you_mean(name, list(Settings.model_fields))
        return {"field": name, "rule": "there is no such setting for rekindle.toml", "hint": meant}
    setting = name.partition(".")[0]
    where = f"a flag, REKINDLE_{setting.upper()} or rekindle.toml sets it"
    wrong: FieldProblem = {"field": name, "rule": error["msg"], "hint": where}
    return wrong if setting in _SECRET else {**wrong, "value": error["input"]}


def connect(context: typer.Context) -> Client:
    """The server of this invocation; it is looked for at the first request."""
    return Client.from_home(settings_of(context))


def find_job(client: Client, reference: str) -> Job:
    """The job that a person means by ``reference``. Raises ProblemError when there is none or more than one."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", reference):
        try:
            return client.job(reference)
        except ProblemError as error:
            if error.problem.get("status") != 404:
                raise
    recent = list(client.jobs(limit=_SEARCHED_JOBS))
    matches = matching(recent, reference)
    if len(matches) == 1:
        return matches[0]
    known = ", ".join(f"{job['number']} {sanitize_line(job['name'])}" for job in (matches or recent)[:5])
    detail = f"{len(matches)} jobs match {reference!r}" if matches else f"No job is called {reference!r}"
    raise ProblemError(
        {"title": "Unknown job", "status": 404, "detail": f"{detail}. Newest: {known or 'none at all'}."}
    )


def matching(jobs: list[Job], reference: str) -> list[Job]:
    """The jobs that ``reference`` means, by number, else the newest by name, else by the beginning of the id."""
    numbered = [job for job in jobs if str(job["number"]) == reference.removeprefix("#")]
    named = [job for job in jobs if job["name"] == reference][:1]
    begun = [job for job in jobs if len(reference) >= _SHORTEST_PREFIX and job["id"].startswith(reference)]
    return numbered or named or begun
