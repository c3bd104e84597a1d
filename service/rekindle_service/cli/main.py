"""The command `rekindle`.

It must start fast, since people type it all day: no module of this package loads torch, and only `serve` loads the
server.
"""

import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from rekindle_service.cli.commands.change import cancel, delete, drain, resume
from rekindle_service.cli.commands.chaos import chaos
from rekindle_service.cli.commands.database import backup, rebuild, restore
from rekindle_service.cli.commands.demo import demo
from rekindle_service.cli.commands.devices import devices
from rekindle_service.cli.commands.disk import disk
from rekindle_service.cli.commands.doctor import doctor
from rekindle_service.cli.commands.experiment import experiment
from rekindle_service.cli.commands.job_queue import queue
from rekindle_service.cli.commands.logs import logs
from rekindle_service.cli.commands.overview import overview
from rekindle_service.cli.commands.prune import prune
from rekindle_service.cli.commands.ps import ps
from rekindle_service.cli.commands.serve import serve
from rekindle_service.cli.commands.show import show
from rekindle_service.cli.commands.snapshots import snapshots
from rekindle_service.cli.commands.submit import CONTEXT as SUBMIT_CONTEXT
from rekindle_service.cli.commands.submit import submit
from rekindle_service.cli.commands.tokens import audit, token
from rekindle_service.cli.commands.top import top
from rekindle_service.cli.commands.wait import wait
from rekindle_service.cli.context import HOME_HELP
from rekindle_service.cli.exit_codes import ExitCode
from rekindle_service.cli.formatting import err, format_error, format_problem
from rekindle_service.client import NoServerError, ProblemError

_CONTEXT = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(name="rekindle", pretty_exceptions_enable=False, context_settings=_CONTEXT)

_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Jobs": (ps, queue, top, show, logs, wait, cancel, drain, resume, delete, chaos, experiment),
    "Server": (serve, demo, doctor, audit, disk, prune, backup, restore, rebuild),
}
app.command(context_settings=SUBMIT_CONTEXT, rich_help_panel="Jobs")(submit)
app.add_typer(snapshots, name="snapshots", rich_help_panel="Jobs")
app.add_typer(devices, name="devices", rich_help_panel="Server")
app.add_typer(token, name="token", rich_help_panel="Server")
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"rekindle {version('rekindle')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    home: Annotated[Path | None, Option(help=f"{HOME_HELP} (default: REKINDLE_HOME or ~/.rekindle)")] = None,
    url: Annotated[
        str | None, Option(help="URL of the server; REKINDLE_TOKEN is its token. (default: REKINDLE_URL)")
    ] = None,
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A fault-tolerant job service for torchrun. Without a command: what needs you, runs, is next and has ended."""
    if context.invoked_subcommand is None:
        overview(context)


def main() -> None:
    """End the process with an ``ExitCode``, never with a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # for a terminal that cannot show a character
    sys.exit(run())


def run() -> int:
    """Run the command line. A command ends with SystemExit; the returned code is that of one that failed to."""
    try:
        app(prog_name="rekindle")
    except ProblemError as error:
        err().print(format_problem(error.problem))
    except NoServerError as error:
        err().print(format_error(str(error), "Start one with: rekindle serve"))
    except Exception as error:  # noqa: BLE001 - a person should read one sentence, not a traceback
        frame = traceback.extract_tb(error.__traceback__)[-1]
        hint = f"Internal error; please report it with this position: {frame.filename}, line {frame.lineno}"
        err().print(format_error(f"{type(error).__name__}: {error}", hint))
    return ExitCode.USAGE
