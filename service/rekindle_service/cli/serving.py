"""`rekindle serve` and `rekindle token`."""

from pathlib import Path
from typing import Annotated

import typer

from rekindle_service.cli.complaint import complaint
from rekindle_service.cli.exit_codes import ExitCode
from rekindle_service.cli.output import err, note
from rekindle_service.cli.session import settings_of


def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on. (default: 127.0.0.1)")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 takes any free port.")] = None,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Let --host be an address that other machines reach.")
    ] = False,
    home: Annotated[Path | None, typer.Option(help="Folder of database, token and runs.")] = None,
) -> None:
    """Run the server in the foreground. Jobs outlive it: they go on when it stops and are found when it starts."""
    from rekindle_service.server import serve as run_server

    flags = {"host": host, "port": port, "allow_remote": allow_remote or None, "home": home}
    raise typer.Exit(run_server(settings_of(context, **flags)))


def token(context: typer.Context) -> None:
    """Print the token that the page and the interface ask for; its path goes to standard error."""
    path = settings_of(context).home_dir.token
    try:
        typer.echo(path.read_text().strip())
    except FileNotFoundError:
        err().print(complaint(f"There is no token in {path}.", "The first `rekindle serve` makes one."))
        raise typer.Exit(ExitCode.USAGE) from None
    except OSError as error:
        err().print(complaint(f"{path} cannot be read: {error.strerror}.", "It is for whoever runs the server alone."))
        raise typer.Exit(ExitCode.USAGE) from None
    note(str(path))
