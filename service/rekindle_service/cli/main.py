"""The command `rekindle`.

A command line that people type all day has to start at once: nothing here or below loads torch, and only `serve`
and `demo` load the server.
"""

import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from rekindle_service.cli.chaos import chaos
from rekindle_service.cli.complaint import complaint, problem_text
from rekindle_service.cli.control import cancel, drain, resume
from rekindle_service.cli.deletion import delete
from rekindle_service.cli.demo import demo
from rekindle_service.cli.doctor import doctor
from rekindle_service.cli.exit_codes import ExitCode
from rekindle_service.cli.experiment import experiment
from rekindle_service.cli.job_list import ps
from rekindle_service.cli.logs import logs
from rekindle_service.cli.output import err
from rekindle_service.cli.serving import serve, token
from rekindle_service.cli.session import Invocation
from rekindle_service.cli.snapshots import snapshots
from rekindle_service.cli.story import show
from rekindle_service.cli.submit import CONTEXT as SUBMIT_CONTEXT
from rekindle_service.cli.submit import submit
from rekindle_service.cli.top import top
from rekindle_service.cli.watch import wait
from rekindle_service.client import NoServerError, ProblemError

app = typer.Typer(
    name="rekindle",
    help="A fault-tolerant job service for torchrun.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_SERVER_COMMANDS: tuple[Callable[..., None], ...] = (serve, demo, doctor, token)
_JOB_COMMANDS: tuple[Callable[..., None], ...] = (
    ps,
    top,
    show,
    logs,
    wait,
    cancel,
    drain,
    resume,
    delete,
    chaos,
    experiment,
)

app.command(context_settings=SUBMIT_CONTEXT, rich_help_panel="Jobs")(submit)
for _command in _JOB_COMMANDS:
    app.command(rich_help_panel="Jobs")(_command)
app.add_typer(snapshots, name="snapshots", rich_help_panel="Jobs")
for _command in _SERVER_COMMANDS:
    app.command(rich_help_panel="Server")(_command)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"rekindle {version('rekindle')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    home: Annotated[
        Path | None, typer.Option(help="Folder of database, token and runs. (default: REKINDLE_HOME or ~/.rekindle)")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Server to talk to; its token is in REKINDLE_TOKEN. (default: REKINDLE_URL)")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A fault-tolerant job service for torchrun."""
    context.obj = Invocation(home, url)


def main() -> None:
    """End the process with an ``ExitCode``, never with a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character is no reason to stop
    sys.exit(run())


def run() -> int:
    """Carry out the command line. Commands end by SystemExit; what returns is the code of a command that could not."""
    try:
        app(prog_name="rekindle")
    except ProblemError as error:
        err().print(problem_text(error.problem))
    except NoServerError as error:
        err().print(complaint(str(error), "Start one with: rekindle serve"))
    except Exception as error:  # noqa: BLE001 - the last line of defence: a person gets one sentence, not a traceback
        err().print(
            complaint(f"{type(error).__name__}: {error}", f"This should not happen; it did in {_place(error)}.")
        )
    return ExitCode.USAGE


def _place(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}, line {frame.lineno}"
