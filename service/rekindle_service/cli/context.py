"""From the command line's arguments to settings, a server and a job; errors of wrong settings name their source."""

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError

from rekindle_service.client import Client, FieldProblem, Job, ProblemError
from rekindle_service.client.api_connection import drop_unset
from rekindle_service.config.client_settings import (
    PREFIX,
    ClientSettings,
    default_home,
    read_settings_file,
    settings_file,
)
from rekindle_service.config.notification_targets import NotificationTarget
from rekindle_service.config.settings import Quota, Settings, unknown_variables
from rekindle_service.sanitize import sanitize_line
from rekindle_service.suggestions import did_you_mean, rule_of

# --- wrong settings

_SECRET = ("notify", "token", "mirror")  # settings whose values are not printed
_NESTED: dict[str, type[BaseModel]] = {"notify": NotificationTarget, "quotas": Quota}
_ENVIRONMENT = re.compile(r'field "(\w+)" from source "EnvSettingsSource"')
"""How pydantic names a variable whose JSON it cannot read."""


def wrong_settings(detail: str, *errors: FieldProblem) -> ProblemError:
    return ProblemError({"title": "Wrong settings", "detail": detail, "errors": list(errors)})


@cache
def check_variables(*, starts_server: bool) -> None:
    """Report environment variables that are misspelt settings, once: a server does not start with them.

    Raises ProblemError.
    """
    unknown = unknown_variables(os.environ)
    if starts_server and unknown:
        problems: list[FieldProblem] = [
            {"field": name, "rule": "unknown setting in the environment", "hint": _variable_hint(near)}
            for name, near in unknown.items()
        ]
        raise wrong_settings("The settings are wrong", *problems)
    for name, near in unknown.items():
        _warn(name, "the environment", _variable_hint(near))


@cache
def check_file(home: Path) -> None:
    """Report unknown settings in the file of ``home``, once: a client does not need them. Raises SettingsError."""
    known = list(Settings.model_fields)
    for name in read_settings_file(home):
        if name not in known:
            _warn(name, str(settings_file(home)), did_you_mean(name, known))


def _warn(name: str, source: str, hint: str) -> None:
    typer.echo(f"warning: unknown setting {sanitize_line(name)} in {sanitize_line(source)} is ignored", err=True)
    typer.echo(f"  hint:  {hint}", err=True)


def _variable_hint(near: list[str]) -> str:
    return f"did you mean {' or '.join(map(repr, near))}?" if near else f"unset it: {PREFIX}… is for settings only"


def explain(error: ValidationError | SettingsError, given: Mapping[str, Any]) -> ProblemError:
    """What is wrong with which setting, and who sets it; ``given`` are the options of the command."""
    if isinstance(error, ValidationError):
        problems = [_field_problem(each, given) for each in error.errors(include_url=False)]
        return wrong_settings("The settings are wrong", *problems)
    unreadable = _ENVIRONMENT.search(str(error))
    if unreadable is None:
        return wrong_settings(str(error))
    name = PREFIX + unreadable[1].upper()
    field: FieldProblem = {"field": name, "rule": "must be JSON", "hint": f"the environment variable {name} sets it"}
    return wrong_settings("The settings are wrong", field)


def _field_problem(error: ErrorDetails, given: Mapping[str, Any]) -> FieldProblem:
    name = ".".join(str(part) for part in error["loc"])
    setting = name.partition(".")[0]
    if error["type"] == "extra_forbidden":
        known = list(_NESTED.get(setting, Settings).model_fields)
        rule = "unknown setting" if setting in _NESTED else f"unknown setting in {_file(given)}"
        return {"field": name, "rule": rule, "hint": did_you_mean(str(error["loc"][-1]), known)}
    problem: FieldProblem = {"field": name, "rule": rule_of(error["msg"]), "hint": f"{_source(setting, given)} sets it"}
    return problem if setting in _SECRET else {**problem, "value": error["input"]}


def _source(setting: str, given: Mapping[str, Any]) -> str:
    if setting in given:
        return f"the option --{setting.replace('_', '-')}"
    variable = PREFIX + setting.upper()
    return f"the environment variable {variable}" if variable in os.environ else str(_file(given))


def _file(given: Mapping[str, Any]) -> Path:
    """The settings file that was read."""
    home = given.get("home") or os.environ.get(f"{PREFIX}HOME") or default_home()
    return settings_file(Path(home))


# --- settings

_STARTING = ("serve", "demo")  # commands that start a server, with the settings of the environment
_COMPLETION_TIMEOUT = 1.0  # seconds: a person has pressed Tab
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*")  # one word in every shell

SomeSettings = TypeVar("SomeSettings", bound=ClientSettings)


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


def job_argument(help_text: str, metavar: str = "JOB") -> Any:
    """An argument that names a job, which a shell completes."""
    return typer.Argument(metavar=metavar, help=help_text, autocompletion=complete_job)


JobArgument = Annotated[
    str, job_argument("Id, its first 4 or more characters, number, or name (the latest job of it).")
]
JobsArgument = Annotated[
    list[str] | None,
    job_argument("Ids, their first 4 or more characters, numbers, or names (the latest job of each).", "[JOB]..."),
]
OptionalJobArgument = Annotated[
    str | None, job_argument("This job instead of the machine: id, its first characters, number or name.", "[JOB]")
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
