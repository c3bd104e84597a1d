"""`rekindle serve`: the server."""

from typing import Annotated

import typer
from typer import Option

from rekindle_service.cli.context import HomeOption, server_settings_of
from rekindle_service.loading import collector_paused

_PORT_HELP = "Port to listen on; 0 takes any free one. (default: 8700)"


def serve(
    context: typer.Context,
    host: Annotated[str | None, Option(help="Address to listen on. (default: 127.0.0.1)")] = None,
    port: Annotated[int | None, Option(min=0, max=65535, help=_PORT_HELP)] = None,
    allow_remote: Annotated[
        bool, Option("--allow-remote", help="Allow a --host that other machines can reach. (default: refuse it)")
    ] = False,
    home: HomeOption = None,
) -> None:
    """Run the server in the foreground.

    Jobs keep running when it stops, and it finds them when it starts again. docs/reference/settings.md lists all
    settings; those without an option here are set in rekindle.toml of the home or by REKINDLE_… variables.
    """
    with collector_paused():
        from rekindle_service.server import serve as run_server

    flags = {"host": host, "port": port, "allow_remote": allow_remote or None, "home": home}
    raise typer.Exit(run_server(server_settings_of(context, **flags)))
