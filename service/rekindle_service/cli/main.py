"""The command `rekindle`.

It must start fast, since people type it all day: no module of this package loads torch, and only `serve` loads the
server.
"""

import sys
import traceback
from collections.abc import Callable
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer import Option

from rekindle.contract import __version__
from rekindle_service.cli.commands.attach_command import attach
from rekindle_service.cli.commands.change import cancel, delete, drain, resume
from rekindle_service.cli.commands.chaos_command import chaos
from rekindle_service.cli.commands.demo import demo
from rekindle_service.cli.commands.diff_command import diff
from rekindle_service.cli.commands.doctor import doctor
from rekindle_service.cli.commands.experiment import experiment
from rekindle_service.cli.commands.follow import logs, wait
from rekindle_service.cli.commands.import_command import import_job
from rekindle_service.cli.commands.job_snapshots import snapshots
from rekindle_service.cli.commands.job_tables import overview, ps, queue
from rekindle_service.cli.commands.machine_commands import devices, disk, prune
from rekindle_service.cli.commands.replay import replay
from rekindle_service.cli.commands.server_commands import audit, backup, mcp, rebuild, restore, serve, token
from rekindle_service.cli.commands.show import show
from rekindle_service.cli.commands.submit import CONTEXT as SUBMIT_CONTEXT
from rekindle_service.cli.commands.submit import submit
from rekindle_service.cli.commands.sweep import sweep
from rekindle_service.cli.commands.top import top
from rekindle_service.cli.context import HomeOption
from rekindle_service.cli.help_and_errors import (
    Command,
    CommandGroup,
    format_error,
    format_problem,
    format_usage_error,
    print_error,
)
from rekindle_service.cli.terminal import ExitCode, OutputOption, note
from rekindle_service.client import NoServerError, ProblemError

_URL_HELP = "Server to talk to; REKINDLE_TOKEN is its token. (default: REKINDLE_URL, else the server of the home)"
_CONTEXT = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(name="rekindle", cls=CommandGroup, rich_markup_mode=None, context_settings=_CONTEXT)

_PANELS: dict[str, tuple[Callable[..., None] | typer.Typer, ...]] = {
    "Run": (submit, sweep, experiment, demo, chaos, import_job),
    "Watch": (ps, queue, top, show, logs, wait, snapshots),
    "Compare": (diff, replay, attach),
    "Control": (cancel, drain, resume, delete),
    "Server": (serve, doctor, devices, disk, prune, mcp),
    "Access": (token, audit),
    "Database": (backup, restore, rebuild),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_command.info.name, rich_help_panel=_panel)
        else:
            _settings = SUBMIT_CONTEXT if _command in (submit, sweep) else {}
            _name = "import" if _command is import_job else None  # a keyword
            app.command(_name, cls=Command, context_settings=_settings, rich_help_panel=_panel)(_command)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"rekindle {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    home: HomeOption = None,
    url: Annotated[str | None, Option(metavar="URL", help=_URL_HELP)] = None,
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    output: OutputOption = "table",
) -> None:
    """Run training scripts as jobs that resume after a crash, a hang or a lost machine.

    Without a command: the jobs that need you, that run, that are next, and that have ended. With -o json, every
    command but serve, demo, attach, mcp and snapshots export prints JSON for programs.
    """
    if context.invoked_subcommand is None:
        overview(context, output)
    elif output != "table":
        context.default_map = output_defaults(context.command, context, output)
        if not context.default_map.get(str(context.invoked_subcommand)):
            raise typer.BadParameter(f"-o {output}: {context.invoked_subcommand} does not print JSON or ids")


def output_defaults(group: Any, context: typer.Context, output: str) -> dict[str, Any]:
    """``-o`` before a command as the default of every command below ``group`` that prints JSON or ids."""
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        outputs = [each for each in command.params if each.name == "output"]
        own = {each.name: output for each in outputs if "json" in each.display_type(context)}
        found[name] = own | (output_defaults(command, context, output) if isinstance(command, CommandGroup) else {})
    return found


def main() -> None:
    """End the process with an ``ExitCode``, never with a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # for a terminal that cannot show a character
    sys.exit(run())


def run() -> int:
    """Run the command line; returns its exit code."""
    try:
        code = app(prog_name="rekindle", standalone_mode=False)
        return code if isinstance(code, int) else ExitCode.SUCCEEDED
    except typer.TyperException as error:
        print_error(format_usage_error(error))
    except typer.Abort:
        note("Stopped; nothing was changed.")
        return ExitCode.FAILED
    except ProblemError as error:
        print_error(format_problem(error.problem))
    except NoServerError as error:
        here = "Start one with: rekindle serve"
        elsewhere = "Check the URL, and that `rekindle serve` runs there."
        print_error(format_error(str(error), elsewhere if "://" in str(error) else here))
    except Exception as error:  # noqa: BLE001 - a person should read one sentence, not a traceback
        frame = traceback.extract_tb(error.__traceback__)[-1]
        hint = f"Internal error; please report it with this position: {frame.filename}, line {frame.lineno}"
        print_error(format_error(f"{type(error).__name__}: {error}", hint))
    return ExitCode.USAGE
