"""From the command line's arguments to settings, a server and a job."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from rekindle_service.cli.settings_errors import check_file, check_variables, explain, wrong_settings
from rekindle_service.client import Client, FieldProblem, Job
from rekindle_service.client.api_connection import drop_unset
from rekindle_service.config.client_settings import ClientSettings
from rekindle_service.config.settings import Settings

_STARTING = ("serve", "demo")  # commands that start a server, with the settings of the environment
_COMPLETION_TIMEOUT = 1.0  # seconds: a person has pressed Tab
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*")  # one word in every shell

SomeSettings = TypeVar("SomeSettings", bound=ClientSettings)

# --- settings


def settings_of(context: typer.Context) -> ClientSettings:
    """The settings of a client; wrong ones of the server do not matter to it. Raises ProblemError for a wrong one."""
    settings = _read_settings(ClientSettings, context)
    if not context.resilient_parsing:
        check_file(settings.home)
    return settings


def server_settings_of(context: typer.Context, **flags: Any) -> Settings:
    """All settings; flags that were not given are None. Raises ProblemError for a wrong one."""
    return _read_settings(Settings, context, **flags)


def _read_settings(kind: type[SomeSettings], context: typer.Context, **flags: Any) -> SomeSettings:
    before_verb = {name: context.find_root().params.get(name) for name in ("home", "url")}
    if not context.resilient_parsing:  # a shell completes
        check_variables(starts_server=context.info_name in _STARTING)
    given = drop_unset(**before_verb) | drop_unset(**flags)
    try:
        settings = kind(**given)
    except (ValidationError, SettingsError) as error:
        raise explain(error, given) from error
    _require_directory(settings.home)
    return settings


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


def connect(context: typer.Context) -> Client:
    """A client of this command's server, which is located at the first request."""
    return Client.from_home(settings_of(context))


# --- jobs


def complete_job(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The jobs whose name or id starts with ``incomplete``, with a description; none where no server answers."""
    try:
        with Client.from_home(settings_of(context), timeout=_COMPLETION_TIMEOUT) as client:
            return list(candidates(client.complete_job(incomplete), incomplete))
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


JobArgument = Annotated[
    str, _job_argument("Id, its first 4 or more characters, number, or name (the latest job of it).")
]
JobsArgument = Annotated[
    list[str] | None,
    _job_argument("Ids, their first 4 or more characters, numbers, or names (the latest job of each).", "[JOB]..."),
]
OptionalJobArgument = Annotated[
    str | None, _job_argument("This job instead of the machine: id, its first characters, number or name.", "[JOB]")
]
_HOME_HELP = "Directory of the database, the token and all runs. (default: REKINDLE_HOME or ~/.rekindle)"
HomeOption = Annotated[Path | None, typer.Option(metavar="PATH", help=_HOME_HELP)]
FilterOption = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="LINE",
        help="Only jobs that match, as in 'state:failed tag:x lr>0.01 resnet'. (default: all)",
    ),
]
YesOption = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")]
