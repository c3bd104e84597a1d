"""Where output goes and in which form."""

import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rekindle_service.sanitize import sanitize_line

_NO_WRAPPING = 100_000  # columns


class Output(StrEnum):
    """The forms of an answer."""

    TABLE = "table"  # for people
    JSON = "json"  # the server's answer as it is
    ID = "id"  # one id a line, for other commands


OutputOption = Annotated[Output, typer.Option("-o", "--output", help="table for people, json or id for programs.")]


def out() -> Console:
    """Standard output; lines of any length when it is no terminal. Nothing is taken for markup or coloured by guess."""
    width = None if sys.stdout.isatty() else _NO_WRAPPING
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)


def err() -> Console:
    """Standard error: notes and errors, so that output can be piped."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


def note(message: str) -> None:
    """One line beside the output."""
    err().print(Text(message, style="dim"))


def show_json(value: Any) -> None:
    """ASCII only, so that no text in it can act on a terminal."""
    typer.echo(json.dumps(value, indent=2))


def show_ids(ids: Iterable[object]) -> None:
    for each in ids:
        typer.echo(sanitize_line(each))


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """A borderless table; cells hold harmless text."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        grid.add_column(column, overflow="fold")
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return grid


STATE_STYLES = {
    "queued": "dim",
    "starting": "cyan",
    "running": "blue",
    "recovering": "yellow",
    "succeeded": "green",
    "failed": "bold red",
    "cancelled": "magenta",
}


def state_text(state: str) -> Text:
    return Text(sanitize_line(state), style=STATE_STYLES.get(state, ""))
