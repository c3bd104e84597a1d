"""Where commands print and how they end: tables for people, JSON or ids for programs, progress, and exit codes."""

import json
import sys
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from enum import IntEnum
from typing import Annotated, Any, BinaryIO, Literal, TypeVar

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from rekindle_service.cli.layout import harmless, paragraph
from rekindle_service.client import Job, Trial, is_settled
from rekindle_service.sanitize import sanitize_line

# --- exit codes


class ExitCode(IntEnum):
    """``wait`` and ``--follow`` exit with the outcome of the jobs, every other command with 0, 1 or 2."""

    SUCCEEDED = 0  # done; of `wait`, `submit --follow` and `experiment --follow`: every job has succeeded
    FAILED = 1  # a job failed or did not recover from `chaos`; `doctor`, `demo` or `diff` found something; you said no
    USAGE = 2  # the command is wrong, the server has rejected it, or no server runs
    CANCELLED = 3  # the job, or one of the experiment, was cancelled
    HELD = 4  # the job was drained; `rekindle resume` continues it
    INTERRUPTED = 130  # Ctrl-C; the job keeps running


def exit_code_for(job: Job | Trial) -> ExitCode | None:
    """The outcome of a settled job, None while it may still continue by itself."""
    return ExitCode.__members__.get(job["state"].upper(), ExitCode.HELD) if is_settled(job) else None


# --- output

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
    print_wrapped(out(), harmless(sentence))


def note(message: str) -> None:
    """Print a sentence for people on standard error."""
    print_wrapped(err(), harmless(message, "dim"))


def note_connection(reachable: bool, why: str) -> None:
    """Note that the server became unreachable, or reachable again; an ``on_connection_change``."""
    unreachable = f"{why or 'Server unreachable'}; the job keeps running; retrying (Ctrl-C ends)."
    note("Server reachable again." if reachable else unreachable)


def print_job(job: Job, output: Output, sentence: str) -> None:
    """Print one job; ``sentence`` is what a person reads about it."""
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


def confirm(question: str) -> None:
    """Ask a person. Raises Abort where the answer is no, and BadParameter where nobody can be asked."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("stdin is not a terminal; pass --yes")
    typer.confirm(sanitize_line(question), err=True, abort=True)


# --- progress

T = TypeVar("T")

_MIN_ITEMS = 5


def counted(items: Iterable[T], label: str) -> Iterator[T]:
    """Show a bar while the items are used, unless they are few."""
    total = len(items) if isinstance(items, Sized) else None
    if total is not None and total < _MIN_ITEMS:
        yield from items
        return
    with _bar(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        yield from bar.track(items, total, description=label)


@contextmanager
def working(label: str) -> Iterator[None]:
    """Show that a step of unknown length takes time."""
    with _bar(SpinnerColumn(), TimeElapsedColumn()) as bar:
        bar.add_task(sanitize_line(label), total=None)
        yield


@contextmanager
def transfer(file: BinaryIO, total: int, label: str) -> Iterator[BinaryIO]:
    """Wrap ``file``, so that its reads move a bar of ``total`` bytes."""
    with _bar(BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as bar:
        yield bar.wrap_file(file, total, description=label)


def _bar(*columns: ProgressColumn) -> Progress:
    console = err()
    text = TextColumn("{task.description}", markup=False)
    return Progress(text, *columns, console=console, transient=True, disable=not console.is_terminal)
