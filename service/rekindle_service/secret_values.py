"""Values of environment variables: any may be a secret, so none is stored in a row, a spec or an answer.

They are stored once, in ``environment.json`` of the run directory, readable by its owner only. A reference to a file or
to a variable of the server is stored instead of a value, and resolved whenever a keeper starts.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rekindle.contract.environment import ENV_FILES
from rekindle.contract.files import read_json
from rekindle.contract.job import HIDDEN, JobSpec
from rekindle.contract.run_dir.paths import RunDir

_SECRET_FIELDS = frozenset({"env", "token"})  # of requests


class MissingVariableError(OSError):
    """A variable of a job has no value any more; the message names it."""


def without_values(spec: JobSpec) -> JobSpec:
    """``spec`` as it is stored."""
    return replace(spec, env=dict.fromkeys(spec.env, HIDDEN))


def stored_values(run_dir: RunDir) -> dict[str, str]:
    """The values that a job was submitted with, by name; none where they are lost."""
    stored = read_json(run_dir.environment, root=run_dir.root)
    return {name: value for name, value in stored.items() if isinstance(value, str)} if isinstance(stored, dict) else {}


def job_variables(spec: JobSpec, values: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """What the job sets. Files are read by its keeper, with the rights of the job. Raises MissingVariableError."""
    if lost := [name for name in spec.env if name not in values]:
        raise MissingVariableError(f"the values of {', '.join(lost)} are lost (environment.json): submit the job again")
    variables = {name: values[name] for name in spec.env}
    for name, source in spec.env_from.items():
        if (origin := source.get("from")) is None:
            continue
        if origin not in inherited:
            raise MissingVariableError(
                f"env.{name} refers to the variable {origin}, which the server does not have or does not pass to jobs: "
                "set it where the server is started; isolated jobs get it with the setting pass_env only"
            )
        variables[name] = inherited[origin]
    files = {name: source["file"] for name, source in spec.env_from.items() if "file" in source}
    return {**variables, ENV_FILES: json.dumps(files)} if files else variables


def without_password(url: str) -> str:
    """A refused git URL as an answer may repeat it."""
    head, separator, rest = url.partition("://")
    user, at, host = (rest if separator else head).rpartition("@")
    if not at or "/" in user:
        return url
    return f"{head + separator if separator else ''}{HIDDEN}@{host}"


def hide_secrets(value: Any, location: tuple[Any, ...] = ()) -> Any:
    """A refused value as an answer may repeat it: nothing of a variable's value, and of no token."""
    if not _SECRET_FIELDS.isdisjoint(map(str, location)):
        return HIDDEN
    if isinstance(value, dict):
        return {key: hide_secrets(each, (key,)) for key, each in value.items()}
    if isinstance(value, list):
        return [hide_secrets(each) for each in value]
    return value
