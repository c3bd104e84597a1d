"""Which code a job takes along: a directory by its path, as an uploaded bundle, or a git repository."""

import subprocess
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import typer

from rekindle_service.cli.formatting import number_of, size
from rekindle_service.cli.terminal import note, transfer, working
from rekindle_service.client import Client, FieldProblem, ProblemError, is_local
from rekindle_service.config.client_settings import ClientSettings
from rekindle_service.suggestions import closest

_GIT_SECONDS = 5.0
_MAX_NAMES = 2000  # of a directory, among which the nearest is searched for

Code = dict[str, Any]
"""The ``code`` of a job in the API."""


def locate(
    kind: str, target: str, code: Path | None, *, git: str | None, ref: str | None
) -> tuple[Path | None, str, Code | None]:
    """The directory to copy if any, what to run in it, and the ``code`` of a job if it comes from git."""
    if git is None:
        if ref is not None:
            raise typer.BadParameter(f"--ref {ref} needs --git URL")
        return (*directory_and_target(kind, target, code, Path.cwd()), None)
    if code is not None:
        raise typer.BadParameter(f"--code {code} and --git {git} exclude each other")
    if kind == "recipe":
        raise typer.BadParameter("--git: a recipe brings its own code")
    return None, target, {"git": git} if ref is None else {"git": git, "ref": ref}


def directory_and_target(kind: str, target: str, code: Path | None, cwd: Path) -> tuple[Path | None, str]:
    """The directory to copy (None for a recipe, which needs none), and what to run in it."""
    if kind == "script":
        return directory_and_script(target, code, cwd)
    if kind == "module":
        if code is None:
            _require_project(cwd.resolve())
        return (cwd / (code or "")).resolve(), target
    if code is not None:
        raise typer.BadParameter("--code: a recipe brings its own code")
    return None, target


def directory_and_script(script: str, code: Path | None, cwd: Path) -> tuple[Path, str]:
    """The directory to copy, and the script relative to it.

    Without ``--code`` it is the current directory when that contains the script, so that `rekindle submit
    src/train.py` takes the whole project along; else the script's own. A person's home is no project: it contains
    everything private.
    """
    path = (cwd / script).resolve()
    if code is not None and not path.is_file():
        path = (cwd / code / script).resolve()
    if not path.is_file():
        raise typer.BadParameter(f"script not found: {path}{_nearest_script(path)}")
    if code is not None:
        directory = (cwd / code).resolve()
        if not path.is_relative_to(directory):
            raise typer.BadParameter(f"the script {path} is not in --code {directory}")
        return directory, str(path.relative_to(directory))
    _require_project(path.parent)
    directory = cwd.resolve()
    if directory in _no_projects() or not path.is_relative_to(directory):
        directory = path.parent
    return directory, str(path.relative_to(directory))


def _nearest_script(path: Path) -> str:
    try:
        names = [one.name for one in islice(path.parent.iterdir(), _MAX_NAMES) if one.suffix == ".py"]
    except OSError:
        return ""
    near = closest(path.name, names)
    return f"; did you mean {near[0]}?" if near else ""


def _require_project(directory: Path) -> None:
    if directory in _no_projects():
        raise typer.BadParameter(
            f"all of {directory} would be copied: move the code to its own directory, or pass --code {directory}"
        )


def _no_projects() -> tuple[Path, Path]:
    return Path("/"), Path.home().resolve()


def send_directory(client: Client, settings: ClientSettings, directory: Path, fields: Mapping[str, Any]) -> Code:
    """The ``code`` of a job: the path for a server on this machine, else an uploaded bundle. Raises ProblemError.

    ``fields`` are those of the request, some of which say what is packed.
    """
    if is_local(settings):
        return {"path": str(directory), **revision(directory)}
    from rekindle_service.jobs.packaging.code_copy import (
        CodeCopyError,
        pack_code,  # packing needs libraries that no other command does
    )
    from rekindle_service.jobs.packaging.ignore_rules import CopyOptions

    if fields.get("keep_links"):
        raise typer.BadParameter(
            "--keep-links: the server is another machine, and may not have what the links point to"
        )
    options = CopyOptions(fields.get("exclude", ()), gitignore=fields.get("gitignore", False))
    with TemporaryFile() as archive:
        try:
            with working(f"Packing {directory}"):
                packed = pack_code(directory, archive, exclude=settings.home, options=options)
        except CodeCopyError as error:
            wrong: FieldProblem = {"field": "code", "rule": error.rule, "value": str(directory), "hint": error.hint}
            raise ProblemError({"title": "Cannot pack the code", "detail": str(error), "errors": [wrong]}) from error
        total = archive.tell()
        sizes = f"{number_of(len(packed.files), 'file')}, {size(packed.bytes)}, packed {size(total)}"
        note(f"Uploading {directory} ({sizes})")
        archive.seek(0)
        with transfer(archive, total, "Uploading") as upload:
            return {"bundle": client.upload_bundle(upload), **revision(directory)}


def revision(directory: Path) -> Code:
    """The ``commit`` of a directory and whether tracked files differ from it (``dirty``); empty without git."""
    describe = ["describe", "--always", "--dirty", "--abbrev=64", "--exclude=*"]
    try:
        found = subprocess.run(
            ["git", "-C", str(directory), "-c", "core.fsmonitor=false", *describe],
            capture_output=True, text=True, timeout=_GIT_SECONDS, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return {}
    commit, _, dirty = found.stdout.strip().partition("-")
    return {"commit": commit, "dirty": bool(dirty)}
