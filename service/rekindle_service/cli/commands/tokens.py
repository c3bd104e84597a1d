"""`rekindle token` and `rekindle audit`: who may use the server, and who has done what."""

import re
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from rekindle_service.cli import formatting
from rekindle_service.cli.command_help import Command, Group
from rekindle_service.cli.context import connect, settings_of
from rekindle_service.cli.output import OutputOption, note, out, print_answer, print_line
from rekindle_service.cli.tables import Table
from rekindle_service.client import AuditEntry, ProblemError, Token
from rekindle_service.sanitize import sanitize_line

_UNITS = {"m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
_SPAN = re.compile(r"([1-9]\d{0,5})([mhdw])")
_COLUMNS = ("ID", "PERSON", "SCOPE", "STATE", "CREATED", "LAST USED", "NOTE")
_CUT = {"PERSON": 8, "NOTE": 12}  # cells
_AUDIT_COLUMNS = ("TIME", "PERSON", "FROM", "ACTION", "STATUS", "DETAIL")
_AUDIT_CUT = {"PERSON": 6, "ACTION": 24, "DETAIL": 16}  # cells

token = typer.Typer(name="token", cls=Group, invoke_without_command=True)


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
        out().print(Table(_COLUMNS, map(_row, tokens), cut=_CUT, drop=("CREATED", "LAST USED"), wrap="NOTE"))


def _row(each: Token) -> list[str]:
    state = "valid" if each["valid"] else "revoked" if each["revoked_at"] else "expired"
    if each["valid"] and each["expires_at"]:
        state = f"until {formatting.clock(each['expires_at'])}"
    times = [formatting.age(each["created_at"]), formatting.age(each["last_used_at"])]
    return [each["id"], sanitize_line(each["person"]), each["scope"], state, *times, sanitize_line(each["note"])]


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
            print_line(f"token {each['id']} of {sanitize_line(each['person'])} is revoked")


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
    return [formatting.clock(each["at"]), *map(sanitize_line, [*cells, each["detail"]])]
