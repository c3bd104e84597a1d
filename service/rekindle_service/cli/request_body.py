"""From the words after `rekindle submit` to the body of ``POST /jobs``. Pure, save for looking where files lie."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

_OWN_ALONE = ("--ranks", "--follow", "--max-failures")


def target_and_args(command: list[str], module: str | None, recipe: str | None) -> tuple[str, str, list[str]]:
    """What to run, as (kind, value, arguments): the first word is the script unless an option names the target."""
    if module is not None and recipe is not None:
        raise typer.BadParameter(f"only one of them: --module {module} or --recipe {recipe}")
    if module is not None:
        return "module", module, command
    if recipe is not None:
        return "recipe", recipe, command
    if not command:
        raise typer.BadParameter("name a script, as in `rekindle submit train.py`, or give --module or --recipe")
    return "script", command[0], command[1:]


def misplaced(args: list[str]) -> list[str]:
    """Options of `rekindle submit` that scripts hardly ever have, among the arguments of one."""
    return [option for option in _OWN_ALONE if any(arg.partition("=")[0] == option for arg in args)]


def code_and_script(script: str, code: Path | None, cwd: Path) -> tuple[Path, str]:
    """The folder to copy, and the script relative to it.

    Without ``--code`` it is the current folder when the script lies in it, so that `rekindle submit src/train.py`
    takes the whole project along; else the script's own folder. Somebody's home is no project: all that is private
    lies in it.
    """
    path = (cwd / script).resolve()
    if not path.is_file():
        raise typer.BadParameter(f"no such script: {path}")
    if code is not None:
        folder = (cwd / code).resolve()
        if not path.is_relative_to(folder):
            raise typer.BadParameter(f"the script {path} does not lie in --code {folder}")
        return folder, str(path.relative_to(folder))
    _require_project(path.parent)
    folder = cwd.resolve()
    if folder in _no_projects() or not path.is_relative_to(folder):
        folder = path.parent
    return folder, str(path.relative_to(folder))


def _require_project(folder: Path) -> None:
    if folder in _no_projects():
        raise typer.BadParameter(
            f"all of {folder} would be copied: put the code in a folder of its own, or say --code {folder}"
        )


def _no_projects() -> tuple[Path, Path]:
    return Path("/"), Path.home().resolve()


def ranks(text: str) -> int | dict[str, int]:
    """``2`` or ``1:4``."""
    least, colon, most = text.partition(":")
    try:
        return {"min": int(least), "max": int(most)} if colon else int(least)
    except ValueError:
        raise typer.BadParameter(f"--ranks takes a number or MIN:MAX, as in 2 or 1:4, not {text!r}") from None


def environment(assignments: list[str], own: Mapping[str, str]) -> dict[str, str]:
    """``K=V`` sets a variable, ``K`` alone takes its value from the environment of this command."""
    variables = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals and name not in own:
            raise typer.BadParameter(f"--env {name}: not set here, and no value given (--env {name}=VALUE)")
        variables[name] = value if equals else own[name]
    return variables


def interpreter(python: str | None, own: Mapping[str, str], cwd: Path) -> str | None:
    """The job's Python: ``active`` is the one of the virtual environment that this shell is in."""
    if python is None:
        return None
    if python != "active":
        return os.path.normpath(cwd / python) if os.sep in python else python
    prefix = own.get("VIRTUAL_ENV") or own.get("CONDA_PREFIX")
    if prefix is None:
        raise typer.BadParameter("--python active: no environment is active here (VIRTUAL_ENV is not set)")
    return str(Path(prefix, "bin", "python"))


def folder_of(kind: str, value: str, code: Path | None, cwd: Path) -> tuple[Path | None, str]:
    """The folder that goes along (a recipe needs none), and what to run in it."""
    if kind == "script":
        return code_and_script(value, code, cwd)
    if kind == "module":
        if code is None:
            _require_project(cwd.resolve())
        return (cwd / code if code is not None else cwd).resolve(), value
    if code is not None:
        raise typer.BadParameter("--code: a recipe brings its own code")
    return None, value


def repository(kind: str, git: str | None, ref: str | None, code: Path | None) -> dict[str, Any] | None:
    """The ``code`` of the body where it is to come from git; None where it lies in a folder."""
    if git is None:
        if ref is not None:
            raise typer.BadParameter(f"--ref {ref} goes with --git URL")
        return None
    if code is not None:
        raise typer.BadParameter(f"only one of them: --code {code} or --git {git}")
    if kind == "recipe":
        raise typer.BadParameter("--git: a recipe brings its own code")
    return given(git=git, ref=ref)


def snapshot_policy(
    steps: int | None, seconds: float | None, epochs: int | None, *, auto: bool, keep: int | None, best: str | None
) -> dict[str, Any]:
    """The ``snapshot`` of the body: when one is taken, and which are kept."""
    return given(every_steps=steps, every_seconds=seconds, every_epochs=epochs, auto=auto or None, keep=keep, best=best)


def given(**fields: Any) -> dict[str, Any]:
    """The fields that were given; the server knows the default of every other."""
    return {name: value for name, value in fields.items() if value not in (None, [], {})}
