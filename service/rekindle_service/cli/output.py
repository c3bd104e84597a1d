"""Where commands print: a table for people, JSON or ids for programs, notes on standard error."""

import json
import sys
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text

from rekindle_service.cli.tables import paragraph
from rekindle_service.client import Job
from rekindle_service.sanitize import sanitize_line

_UNLIMITED_WIDTH = 100_000  # columns

Output = Literal["table", "json", "id"]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="table for people; json or id for programs.")]


def out() -> Console:
    """Standard output; lines of any length when it is no terminal. Text is neither markup nor highlighted."""
    width = None if sys.stdout.isatty() else _UNLIMITED_WIDTH
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)


def err() -> Console:
    """Standard error: notes and errors, so that output can be piped."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_wrapped(console: Console, text: Text) -> None:
    """Lines that end between words where a terminal would break them anywhere; a long word stays whole."""
    if not console.is_terminal:
        console.print(text)
        return
    for line in text.split("\n", allow_blank=True):
        indent = len(line.plain) - len(line.plain.lstrip())
        for part in paragraph(console, line[indent:], indent, hanging=2, fold=False):
            console.print(part)


def print_line(sentence: str) -> None:
    """A sentence for people, on standard output."""
    print_wrapped(out(), Text(sentence))


def note(message: str) -> None:
    print_wrapped(err(), Text(message, style="dim"))


def note_connection(reachable: bool) -> None:
    """Note that the server became unreachable, or reachable again; for ``on_connection_change``."""
    unreachable = "Server unreachable; the job keeps running; retrying (Ctrl-C ends)."
    note("Server reachable again." if reachable else unreachable)


def print_job(job: Job, output: Output, sentence: str) -> None:
    """One job; ``sentence`` is what a person reads about it."""
    if not print_answer(output, job, [job["id"]]):
        print_line(sentence)


def print_answer(output: Output, answer: Any, ids: Iterable[object]) -> bool:
    """Print ``answer`` or ``ids`` for a program; False where a person reads it, for whom the caller prints."""
    if output == "json":
        typer.echo(json.dumps(answer, indent=2))  # in ASCII, so that no text in it can control a terminal
    elif output == "id":
        for each in ids:
            typer.echo(sanitize_line(each))
    return output != "table"
