"""From the command line's arguments to settings, a server and a job."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError

from rekindle_service.client import Client, FieldProblem, Job, ProblemError
from rekindle_service.client.calls import drop_unset
from rekindle_service.config.settings import Settings
from rekindle_service.suggestions import did_you_mean

_SECRET = ("notify", "token")  # settings whose values are not printed
_COMPLETION_TIMEOUT = 1.0  # seconds: a person has pressed Tab
_COMPLETED_JOBS = 50
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*")  # one word in every shell

# --- settings


def settings_of(context: typer.Context, **flags: Any) -> Settings:
    """The settings of this command; flags that were not given are None. Raises ProblemError for a wrong one."""
    before_verb = {name: context.find_root().params.get(name) for name in ("home", "url")}
    try:
        settings = Settings(**drop_unset(**before_verb) | drop_unset(**flags))
    except ValidationError as error:
        raise wrong_settings("The settings are wrong", *map(_field_problem, error.errors(include_url=False))) from error
    except SettingsError as error:
        raise wrong_settings(str(error)) from error
    _require_directory(settings.home)
    return settings


def wrong_settings(detail: str, *errors: FieldProblem) -> ProblemError:
    return ProblemError({"title": "Wrong settings", "detail": detail, "errors": list(errors)})


def _require_directory(home: Path) -> None:
    """Raises ProblemError for a home that is not a directory; the server creates a missing one."""
    try:
        usable = home.is_dir() or not home.exists()
    except OSError:
        usable = False
    if not usable:
        hint = "set --home or REKINDLE_HOME to another one"
        wrong: FieldProblem = {"field": "home", "rule": "must be a directory", "value": str(home), "hint": hint}
        raise wrong_settings("The home is not a directory", wrong)


def _field_problem(error: ErrorDetails) -> FieldProblem:
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden" and name.isidentifier():
        hint = did_you_mean(name, list(Settings.model_fields))
        return {"field": name, "rule": "unknown setting in rekindle.toml", "hint": hint}
    setting = name.partition(".")[0]
    source = f"a flag, REKINDLE_{setting.upper()} or rekindle.toml sets it"
    problem: FieldProblem = {"field": name, "rule": error["msg"], "hint": source}
    return problem if setting in _SECRET else {**problem, "value": error["input"]}


def connect(context: typer.Context) -> Client:
    """A client of this command's server, which is located at the first request."""
    return Client.from_home(settings_of(context))


# --- jobs


def complete_job(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The recent jobs that start with ``incomplete``, each with a description; none where no server answers."""
    try:
        with Client.from_home(settings_of(context), timeout=_COMPLETION_TIMEOUT) as client:
            return list(candidates(list(client.jobs(limit=_COMPLETED_JOBS)), incomplete))
    except Exception:  # noqa: BLE001 a shell cannot show an error while it completes
        return []


def candidates(jobs: list[Job], incomplete: str) -> Iterator[tuple[str, str]]:
    """Each name once; ids of jobs whose name is no plain word, and those that start with what was typed."""
    names = set[str]()
    for job in jobs:
        description = f"job {job['number']}, {job['state']}"
        usable = _PLAIN.fullmatch(job["name"]) is not None and job["name"] not in names
        if usable and job["name"].startswith(incomplete):
            names.add(job["name"])
            yield job["name"], description
        elif (not usable or incomplete) and job["id"].startswith(incomplete):
            yield job["id"], description


def _job_argument(help_text: str, metavar: str = "JOB") -> Any:
    return typer.Argument(metavar=metavar, help=help_text, autocompletion=complete_job)


JobArgument = Annotated[str, _job_argument("Id, prefix of an id, number, or name (the latest job of that name).")]
JobsArgument = Annotated[
    list[str] | None,
    _job_argument("Ids, prefixes of ids, numbers, or names (the latest job of each name).", "[JOBS]"),
]
OptionalJobArgument = Annotated[str | None, _job_argument("Show this job instead of the machine.", "[JOB]")]
HOME_HELP = "Directory of database, token and runs."
HomeOption = Annotated[Path | None, typer.Option(help=HOME_HELP)]
FilterOption = Annotated[
    str | None,
    typer.Option("--filter", metavar="LINE", help="Only jobs like this, as in 'state:failed tag:x lr>0.01 resnet'."),
]
YesOption = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")]
