"""`rekindle serve`, `mcp`, `token`, `audit`, `backup`, `restore` and `rebuild`: servers, users and the database."""

import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from rekindle_service.cli import formatting
from rekindle_service.cli.context import HomeOption, YesOption, connect, server_settings_of, settings_of
from rekindle_service.cli.formatting import number_of
from rekindle_service.cli.help_and_errors import Command, CommandGroup
from rekindle_service.cli.layout import Table
from rekindle_service.cli.terminal import Output, OutputOption, confirm, note, out, print_answer, print_line
from rekindle_service.client import AuditEntry, ProblemError, Token
from rekindle_service.config.home import Home, HomeInUseError
from rekindle_service.loading import collector_paused

if TYPE_CHECKING:
    from rekindle_service.scheduler.recovery import RestoreReport


# --- server

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


_HTTP_HELP = (
    "Serve HTTP on this port of loopback, each request with its own token. (default: standard input and output)"
)


def mcp(
    context: typer.Context,
    http: Annotated[int | None, Option(metavar="PORT", min=1, max=65535, help=_HTTP_HELP)] = None,
) -> None:
    """Serve jobs to agents by the Model Context Protocol.

    Tools that change something are listed where the token has the scope for it. Needs the extra [mcp].
    """
    try:
        from rekindle_service.mcp_server import protocol
    except ImportError as error:
        install = f"{sys.executable} -m pip install 'rekindle-torchrun[mcp]'"
        raise ProblemError({"detail": f"rekindle mcp needs its extra ({error}). Install it: {install}"}) from None
    settings = settings_of(context)
    if http is None:
        protocol.serve_stdio(settings)
        return
    note(f"Serving http://{protocol.HOST}:{http}/mcp. Ctrl-C ends.")
    protocol.serve_http(settings, http)


# --- tokens

_UNITS = {"m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
_SPAN = re.compile(r"([1-9]\d{0,5})([mhdw])")
_TOKEN_COLUMNS = ("ID", "PERSON", "SCOPE", "STATE", "CREATED", "LAST USED", "NOTE")
_TOKEN_CUT = {"PERSON": 8, "NOTE": 12}  # cells
_AUDIT_COLUMNS = ("TIME", "PERSON", "FROM", "ACTION", "STATUS", "DETAIL")
_AUDIT_CUT = {"PERSON": 6, "ACTION": 24, "DETAIL": 16}  # cells

token = typer.Typer(name="token", cls=CommandGroup, invoke_without_command=True)


@token.callback()
def print_token(context: typer.Context, output: OutputOption = "table") -> None:
    """Print the server's token; create, list and revoke those of people."""
    if context.invoked_subcommand is not None:
        return
    path = settings_of(context).home_dir.token
    try:
        secret = path.read_text().strip()
    except FileNotFoundError:
        raise ProblemError(
            {"detail": f"There is no token in {path}. The first `rekindle serve` creates one."}
        ) from None
    except OSError as error:
        reason = f"{path} cannot be read: {error.strerror}. Only the user who runs the server can read it."
        raise ProblemError({"detail": reason}) from None
    if not print_answer(output, {"token": secret, "path": str(path)}, [secret]):
        typer.echo(secret)
        note(str(path))


@token.command(cls=Command)
def create(
    context: typer.Context,
    person: Annotated[str, Argument(metavar="NAME", help="Name of the person, who owns the jobs submitted with it.")],
    scope: Annotated[Literal["read", "submit", "admin"], Option(help="What the token allows.")] = "submit",
    expires: Annotated[
        str | None, Option(metavar="SPAN", help="Time until it expires, as in 12h, 30d, 8w. (default: never)")
    ] = None,
    remark: Annotated[str, Option("--note", help="What the token is for. (default: none)")] = "",
    output: OutputOption = "table",
) -> None:
    """Create a token for a person, and print it.

    It cannot be shown again.
    """
    with connect(context) as client:
        new = client.create_token(person, scope, None if expires is None else _seconds(expires), remark)
    if not print_answer(output, new, [new["id"]]):
        typer.echo(new["token"])
        until = formatting.clock(new["expires_at"]) if new["expires_at"] else "revoked"
        note(f"token {new['id']} of {new['person']}, scope {new['scope']}, valid until {until}; it is not shown again")


def _seconds(span: str) -> float:
    match = _SPAN.fullmatch(span)
    if match is None:
        raise typer.BadParameter(f"{span!r} is no time span: a number with m, h, d or w, as in 30d")
    return float(int(match[1]) * _UNITS[match[2]])


@token.command("list", cls=Command)
def list_tokens(context: typer.Context, output: OutputOption = "table") -> None:
    """List the tokens of all people, or only your own.

    An administrator sees those of all.
    """
    with connect(context) as client:
        tokens = client.tokens()
    if not print_answer(output, tokens, (each["id"] for each in tokens)):
        out().print(
            Table(_TOKEN_COLUMNS, map(_token_row, tokens), cut=_TOKEN_CUT, drop=("CREATED", "LAST USED"), wrap="NOTE")
        )


def _token_row(each: Token) -> list[str]:
    state = "valid" if each["valid"] else "revoked" if each["revoked_at"] else "expired"
    if each["valid"] and each["expires_at"]:
        state = f"until {formatting.clock(each['expires_at'])}"
    times = [formatting.age(each["created_at"]), formatting.age(each["last_used_at"])]
    return [each["id"], each["person"], each["scope"], state, *times, each["note"]]


@token.command(cls=Command)
def revoke(
    context: typer.Context,
    reference: Annotated[
        str, Argument(metavar="ID|NAME", help="Id of a token, or name of a person: all their tokens.")
    ],
    output: OutputOption = "table",
) -> None:
    """Revoke a token, or all tokens of a person.

    Browsers that have signed in with it are signed out.
    """
    with connect(context) as client:
        tokens = [each for each in client.tokens() if reference in (each["id"], each["person"]) and each["valid"]]
        if not tokens:
            detail = f"{reference!r} is neither the id of a valid token nor a person who has one"
            raise ProblemError({"detail": f"{detail}: list them with `rekindle token list`."})
        for each in tokens:
            client.revoke_token(each["id"])
    if not print_answer(output, [each["id"] for each in tokens], (each["id"] for each in tokens)):
        for each in tokens:
            print_line(f"Revoked token {each['id']} of {each['person']}")


def audit(
    context: typer.Context,
    person: Annotated[str | None, Option(help="Only changes by this person. (default: all)")] = None,
    limit: Annotated[int, Option(help="Maximum number of entries.", min=1, max=200)] = 50,
    output: OutputOption = "table",
) -> None:
    """List who changed what from where, latest first."""
    with connect(context) as client:
        entries = client.audit(person, limit)
    if not print_answer(output, entries, (each["id"] for each in entries)):
        out().print(Table(_AUDIT_COLUMNS, map(_audit_row, entries), cut=_AUDIT_CUT, drop=("FROM",), wrap="DETAIL"))


def _audit_row(each: AuditEntry) -> list[str]:
    source = f"{each['via']} {each['address']}".strip()
    action = f"{each['action'].partition(' ')[0]} {each['target'].removeprefix('/api/v1')}"
    cells = [each["person"] or formatting.ABSENT, source, action, str(each["status"])]
    return [formatting.clock(each["at"]), *cells, each["detail"]]


# --- database

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
    from rekindle_service.scheduler.recovery import restore as restore_database

    home = server_settings_of(context).home_dir
    if not yes:
        confirm(f"Replace the database by {file}? The present one is kept in the home's backups.")
    _report(_carry_out(lambda home: restore_database(home, file), home), output)


def rebuild(context: typer.Context, yes: YesOption = False, output: OutputOption = "table") -> None:
    """Make a new database from the run directories.

    Tokens, events and the audit log are not in them and are lost. No server may run in this home.
    """
    from rekindle_service.scheduler.recovery import rebuild as rebuild_database

    home = server_settings_of(context).home_dir
    if not yes:
        confirm("Make a new database? The present one is kept in the home's backups.")
    _report(_carry_out(rebuild_database, home), output)


def _carry_out(action: "Callable[[Home], RestoreReport]", home: Home) -> "RestoreReport":
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


def _report(restored: "RestoreReport", output: Output) -> None:
    found = restored.recovered
    answer = {"jobs": restored.jobs, "replaced": restored.replaced and str(restored.replaced), **asdict(found)}
    if print_answer(output, answer, [*found.held, *found.started, *found.older]):
        return
    print_line(f"The database has {number_of(restored.jobs, 'job')}.")
    for ids, sentence in (
        (found.held, "on hold, not in the database and never started (resume or cancel)"),
        (found.started, "added from the run directory, not in the database"),
        (found.older, "updated from the journal, changed since the backup"),
        (found.gone, "without a run directory, which was deleted"),
        (found.unreadable, "unreadable, since spec.json is missing or damaged"),
    ):
        if ids:
            more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
            print_line(f"{number_of(len(ids), 'job')} {sentence}: {', '.join(ids[:_SHOWN])}{more}")
    if restored.replaced is not None:
        note(f"The former database is in {restored.replaced}.")
    note("Start the server: rekindle serve")
