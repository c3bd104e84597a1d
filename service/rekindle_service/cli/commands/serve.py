"""`rekindle serve`, and `rekindle token` for those who connect to it."""

from typing import Annotated

import typer
from typer import Option

from rekindle_service.cli.context import HomeOption, settings_of
from rekindle_service.cli.formatting import note
from rekindle_service.client import ProblemError

_PORT_HELP = "Port to listen on; 0 takes any free one. (default: 8700)"


def serve(
    context: typer.Context,
    host: Annotated[str | None, Option(help="Address to listen on. (default: 127.0.0.1)")] = None,
    port: Annotated[int | None, Option(min=0, max=65535, help=_PORT_HELP)] = None,
    allow_remote: Annotated[
        bool, Option("--allow-remote", help="Allow a --host that other machines can reach.")
    ] = False,
    home: HomeOption = None,
) -> None:
    """Run the server in the foreground. Jobs keep running when it stops, and it finds them when it starts again."""
    from rekindle_service.server import serve as run_server

    flags = {"host": host, "port": port, "allow_remote": allow_remote or None, "home": home}
    raise typer.Exit(run_server(settings_of(context, **flags)))


def token(context: typer.Context) -> None:
    """Print the token of the web page and the API; its path is printed to standard error."""
    path = settings_of(context).home_dir.token
    try:
        typer.echo(path.read_text().strip())
    except FileNotFoundError:
        raise ProblemError(
            {"detail": f"There is no token in {path}. The first `rekindle serve` creates one."}
        ) from None
    except OSError as error:
        reason = f"{path} cannot be read: {error.strerror}. Only the user who runs the server can read it."
        raise ProblemError({"detail": reason}) from None
    note(str(path))
