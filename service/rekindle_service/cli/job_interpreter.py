"""The Python interpreter of a job: the one that a command names, or else that of the shell, where it can run jobs."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import typer

from rekindle_service.cli.terminal import note
from rekindle_service.client import FieldProblem, ProblemError, is_local
from rekindle_service.config.client_settings import ClientSettings
from rekindle_service.suggestions import closest

T = TypeVar("T")

_SECONDS = 10  # that a shim may take to answer
_WHICH = "import sys; print(sys.executable)"


@dataclass(frozen=True, slots=True)
class ShellPython:
    """``environment``: the active one that it belongs to; None where it is what `python` means in this shell."""

    path: str
    environment: str | None = None


def interpreter(python: str, directory: Path = Path()) -> str:
    """The path that `--python` means; ``active`` means that of the virtual environment of this shell."""
    if python != "active" and closest(python, ["active"]):
        raise typer.BadParameter(f"{python!r}: must be the path of an interpreter or active; did you mean 'active'?")
    if python != "active":
        return os.path.abspath(directory / python) if os.sep in python else python  # noqa: PTH100  # links stay
    prefix = active_environment()
    if prefix is None:
        raise typer.BadParameter("--python active: no environment is active in this shell (VIRTUAL_ENV is not set)")
    return str(Path(prefix, "bin", "python"))


def active_environment() -> str | None:
    return os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")


def shell_python() -> ShellPython | None:
    """The interpreter of the active environment, else the one that `python` starts in this shell."""
    if (prefix := active_environment()) is not None:
        return ShellPython(str(Path(prefix, "bin", "python")), prefix)
    found = shutil.which("python") or shutil.which("python3")
    path = None if found is None else _started_by(Path(found).absolute())
    return None if path is None else ShellPython(path)


def _started_by(program: Path) -> str | None:
    """The interpreter that ``program`` is, or that it chooses by what the shell has set, as the shims of pyenv do."""
    with suppress(OSError, subprocess.SubprocessError):
        with program.open("rb") as file:
            if file.read(2) != b"#!":
                return str(program)
        command = [str(program), "-I", "-c", _WHICH]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
        return done.stdout.strip() or None
    return None


def send_with_interpreter(
    settings: ClientSettings, send: Callable[[dict[str, Any]], T], fields: Mapping[str, Any], section: str = ""
) -> T:
    """Send a request for a job with the interpreter of this shell; where that cannot run it, leave it to the server.

    ``section``: the part of the request that has the fields of the job. Nothing is added to a job that names an
    interpreter, to a recipe, which the server brings, and to a job on Slurm, whose nodes nobody can ask now.
    """
    job = fields.get(section, {}) if section else fields
    if not isinstance(job, dict) or {"python", "recipe", "slurm", "nodes"} & job.keys() or "builtin" in fields:
        return send(dict(fields))
    if not is_local(settings):
        if active_environment() is not None:
            note("The server is on another machine: the job runs under an interpreter there, see --python")
        return send(dict(fields))
    if (found := shell_python()) is None:
        return send(dict(fields))
    chosen = {**job, "python": found.path}
    try:
        return send({**fields, section: chosen} if section else chosen)
    except ProblemError as error:
        refused = _about_interpreter(error)
        if not refused:
            raise
    return _send_without(send, fields, found, refused)


def _send_without(
    send: Callable[[dict[str, Any]], T], fields: Mapping[str, Any], found: ShellPython, refused: list[FieldProblem]
) -> T:
    try:
        sent = send(dict(fields))
    except ProblemError as error:
        if _about_interpreter(error):
            error.problem["errors"] = [*refused, *error.problem["errors"]]
        raise
    if found.environment is not None and Path(found.environment).resolve() != Path(sys.prefix).resolve():
        note(f"{found.path}, of the active environment, is not used: it {refused[0]['rule']}")
    return sent


def _about_interpreter(error: ProblemError) -> list[FieldProblem]:
    return [each for each in error.problem.get("errors", []) if each["field"].rpartition(".")[2] == "python"]
