"""Wrong settings as errors that name the setting, the rule, the value and who sets it."""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError

from rekindle_service.client import FieldProblem, ProblemError
from rekindle_service.config.client_settings import PREFIX
from rekindle_service.config.home_file import default_home, read_settings_file, settings_file
from rekindle_service.config.notification_targets import NotificationTarget
from rekindle_service.config.settings import Quota, Settings, unknown_variables
from rekindle_service.sanitize import sanitize_line
from rekindle_service.suggestions import did_you_mean, rule_of

_SECRET = ("notify", "token")  # settings whose values are not printed
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
