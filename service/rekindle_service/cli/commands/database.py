"""`rekindle backup`, `restore` and `rebuild`: the database of this machine's home."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument

from rekindle_service.cli.context import YesOption, server_settings_of
from rekindle_service.cli.output import Output, OutputOption, note, print_answer, print_line
from rekindle_service.client import ProblemError
from rekindle_service.config.home import Home, HomeInUseError

if TYPE_CHECKING:
    from rekindle_service.scheduler.restore import Restored

_SHOWN = 10


def backup(
    context: typer.Context,
    path: Annotated[
        Path | None, Argument(help="File to write. (default: a new one in the directory backups of the home)")
    ] = None,
    output: OutputOption = "table",
) -> None:
    """Copy the database into one file, and print its path.

    The server may run meanwhile.
    """
    from rekindle_service.store import StorageError
    from rekindle_service.store.backups import Backups, back_up

    home = server_settings_of(context).home_dir
    if not home.database.is_file():
        raise ProblemError({"detail": f"There is no database in {home.root}. The first `rekindle serve` creates one."})
    if path is not None and path.exists():
        raise ProblemError({"detail": f"{path} exists already. Name a new file."})
    try:
        if path is None:
            path = Backups(home.database).make("command")
        else:
            back_up(home.database, path.absolute())
    except StorageError as error:
        raise ProblemError({"detail": str(error)}) from error
    if not print_answer(output, {"path": str(path), "bytes": path.stat().st_size}, [path]):
        typer.echo(str(path))


def restore(
    context: typer.Context,
    file: Annotated[Path, Argument(help="Backup, as `rekindle backup` writes it.")],
    yes: YesOption = False,
    output: OutputOption = "table",
) -> None:
    """Replace the database by a backup.

    Jobs submitted since are kept: what their run directories record is added. No server may run in this home.
    """
    from rekindle_service.scheduler.restore import restore as restore_database

    home = server_settings_of(context).home_dir
    _confirm(f"Replace the database by {file}? The present one is kept in the home's backups.", yes=yes)
    _report(_carry_out(lambda home: restore_database(home, file), home), output)


def rebuild(context: typer.Context, yes: YesOption = False, output: OutputOption = "table") -> None:
    """Make a new database from the run directories.

    Tokens, events and the audit log are not in them and are lost. No server may run in this home.
    """
    from rekindle_service.scheduler.restore import rebuild as rebuild_database

    home = server_settings_of(context).home_dir
    _confirm("Make a new database? The present one is kept in the home's backups.", yes=yes)
    _report(_carry_out(rebuild_database, home), output)


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("stdin is not a terminal; pass --yes")
    typer.confirm(question, abort=True, err=True)


def _carry_out(action: "Callable[[Home], Restored]", home: Home) -> "Restored":
    from rekindle_service.config.logging_config import configure_logging
    from rekindle_service.store import CorruptDatabaseError, StorageError

    configure_logging()
    try:
        return action(home)
    except HomeInUseError as error:
        detail = f"{error}. A database is replaced only while no server runs: stop it first; its jobs keep running."
        raise ProblemError({"detail": detail}) from error
    except (CorruptDatabaseError, StorageError, OSError) as error:
        raise ProblemError({"detail": str(error)}) from error


def _report(restored: "Restored", output: Output) -> None:
    found = restored.recovered
    answer = {"jobs": restored.jobs, "replaced": restored.replaced and str(restored.replaced), **asdict(found)}
    if print_answer(output, answer, [*found.held, *found.started, *found.older]):
        return
    print_line(f"{restored.jobs} jobs")
    for ids, sentence in (
        (found.held, "were not in the database and have never started: they are held, resume or cancel them"),
        (found.started, "were not in the database and have been started: their journals say what they did"),
        (found.older, "had run since: brought up to date from their journals"),
        (found.gone, "have no run directory any more: they were deleted since, or their files were"),
        (found.unreadable, "are directories from which no job can be made: spec.json is missing or unreadable"),
    ):
        if ids:
            more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
            print_line(f"{len(ids)} {sentence}: {', '.join(ids[:_SHOWN])}{more}")
    if restored.replaced is not None:
        note(f"the former database is in {restored.replaced}")
    note("start the server: rekindle serve")
