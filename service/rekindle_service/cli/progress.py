"""Progress of commands that take long: a bar on standard error where that is a terminal, nothing elsewhere."""

from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import BinaryIO, TypeVar

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

from rekindle_service.cli.output import err

T = TypeVar("T")

_MIN_ITEMS = 5


def counted(items: Iterable[T], label: str) -> Iterator[T]:
    """The items, with a bar while they are used; none for a few."""
    total = len(items) if isinstance(items, Sized) else None
    if total is not None and total < _MIN_ITEMS:
        yield from items
        return
    with _bar(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        yield from bar.track(items, total, description=label)


def named_steps(steps: Iterable[tuple[str, T]], label: str) -> Iterator[T]:
    """The second of each pair; the first says what is being done with it."""
    with _bar(SpinnerColumn(), TimeElapsedColumn()) as bar:
        task = bar.add_task(label, total=None)
        for name, step in steps:
            bar.update(task, description=f"{label} {name}")
            yield step


@contextmanager
def working(label: str) -> Iterator[None]:
    """A step of which nobody knows how far it is."""
    with _bar(SpinnerColumn(), TimeElapsedColumn()) as bar:
        bar.add_task(label, total=None)
        yield


@contextmanager
def transfer(file: BinaryIO, total: int, label: str) -> Iterator[BinaryIO]:
    """``file``, whose reads move a bar of ``total`` bytes."""
    with _bar(BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as bar:
        yield bar.wrap_file(file, total, description=label)


def _bar(*columns: ProgressColumn) -> Progress:
    console = err()
    text = TextColumn("{task.description}", markup=False)
    return Progress(text, *columns, console=console, transient=True, disable=not console.is_terminal)
