"""Scalars that a script writes for TensorBoard, copied while it runs to where the page reads metrics.

The script is not changed for it: its event files are found by their names below its working directory and its snapshot
directory, wherever Lightning, Transformers or a SummaryWriter put them.
"""

import math
import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path

from rekindle.contract.run_dir.rank_records import MetricPoint
from rekindle.contract.safe_open import open_regular
from rekindle.keeper.observers.files import walk_files
from rekindle.keeper.observers.tfevents import DamagedError, Event, read_events
from rekindle.training.reporter import MetricLog

INTERVAL = 2.0  # seconds
MAX_SECONDS = 0.1  # per call: a keeper that reads does not notice that a rank dies
LAST_MAX_SECONDS = 3.0  # when the ranks have gone: the next attempt waits for it, if that much is left
MAX_FILES = 1000  # of an attempt, and new names examined per call
MAX_BYTES = 256 << 20  # of the copy. When it has more, nothing is added: a script may log for ever
_REST_FACTOR = 20  # times as long as a call has taken passes before the next one
_MARK = "events.out.tfevents."
_MAX_VALUES = 40  # in a line, so that no line is too long for readers
_MAX_NAME = 200  # characters


@dataclass(slots=True)
class _EventFile:
    """One of this attempt."""

    path: Path
    prefix: str
    offset: int = 0


class TensorBoardImport:
    """One per attempt, written by its keeper only. No fsync: it means nothing to a resume.

    A file belongs to the attempt in which its first record was written: others came with the code, or are an earlier
    attempt's.
    """

    def __init__(self, path: Path, directories: Sequence[Path]) -> None:
        self._path, self._directories, self._log = path, directories, MetricLog(path)
        self._started_at = time.time()
        self._files: list[_EventFile] = []
        self._known: set[str] = set()  # paths
        self._root: Path | None = None
        self._next_call = 0.0  # seconds of CLOCK_MONOTONIC

    def copy_if_due(self, other_ranks: Collection[int]) -> None:
        """Copy what is new. ``other_ranks``: pids of all ranks but the first, whose files are ignored."""
        now = time.monotonic()
        if now >= self._next_call:
            self._copy_new(other_ranks, MAX_SECONDS)
            self._next_call = time.monotonic() + max(INTERVAL, _REST_FACTOR * (time.monotonic() - now))

    def finish(self, other_ranks: Collection[int]) -> None:
        """Copy what the ranks have left, now that they are gone."""
        self._copy_new(other_ranks, LAST_MAX_SECONDS)

    def _copy_new(self, other_ranks: Collection[int], seconds: float) -> None:
        """What does not fit on a full disk is a gap in the curves, no failure."""
        with suppress(OSError):
            self._find_files(other_ranks)
            if self._files and not (self._path.exists() and self._path.stat().st_size > MAX_BYTES):
                self._copy(time.monotonic() + seconds)
                self._log.flush()

    def _find_files(self, other_ranks: Collection[int]) -> None:
        found: list[tuple[float, Path]] = []
        new = (path for path in self._new_paths() if writer_of(path.name) not in other_ranks)
        for path in islice(new, MAX_FILES):
            started_at = _first_record_at(path)
            if started_at is not None:
                self._known.add(str(path))
                found.append((started_at, path))
        for started_at, path in sorted(found):
            if started_at >= self._started_at and len(self._files) < MAX_FILES:
                self._root = self._root or path.parent
                self._files.append(_EventFile(path, prefix_of(path.parent, self._root)))

    def _new_paths(self) -> Iterator[Path]:
        for directory in self._directories:
            for entry in walk_files(directory):
                if _MARK in entry.name and entry.path not in self._known:
                    yield Path(entry.path)

    def _copy(self, deadline: float) -> None:
        """One file at least; those that were not reached come first the next time."""
        for number, file in enumerate(self._files, start=1):
            with suppress(DamagedError, FileNotFoundError):
                self._copy_file(file, deadline)
            if time.monotonic() > deadline:
                self._files = self._files[number:] + self._files[:number]
                return

    def _copy_file(self, event_file: _EventFile, deadline: float) -> None:
        points: list[MetricPoint] = []
        with open_regular(event_file.path) as file:
            file.seek(event_file.offset)
            try:
                for offset, event in read_events(file, os.fstat(file.fileno()).st_size):
                    event_file.offset = offset
                    if event is not None:
                        _add_scalars(points, event, event_file.prefix)
                    if time.monotonic() > deadline:
                        return
            finally:
                for point in points:
                    self._log.add(point)


def _add_scalars(points: list[MetricPoint], event: Event, prefix: str) -> None:
    """Those of the same step together in one point, as far as they fit."""
    at = event.at if math.isfinite(event.at) else time.time()
    for tag, value in event.scalars:
        name, last = (prefix + tag)[:_MAX_NAME], points[-1] if points else None
        if last is None or last.step != event.step or name in last.values or len(last.values) >= _MAX_VALUES:
            last = MetricPoint(event.step, None, at)
            points.append(last)
        last.values[name] = value


def writer_of(name: str) -> int | None:
    """The pid in the name of an event file, ``events.out.tfevents.<seconds>.<host>.<pid>.<number>``."""
    parts = name.rpartition(_MARK)[2].split(".")
    return int(parts[-2]) if len(parts) >= 4 and parts[-2].isdecimal() else None


def prefix_of(directory: Path, root: Path) -> str:
    """What the names of scalars in ``directory`` begin with: nothing in the attempt's first directory, ``root``.

    Else the path from there: next to ``runs/train`` it is ``val/`` for ``runs/val``. So the names are the same in every
    attempt, though the directories' may hold the time or a number.
    """
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(directory.parts, root.parts, strict=False)))
    return "".join(f"{part}/" for part in directory.parts[common:])


def _first_record_at(path: Path) -> float | None:
    """When the first record was written, in seconds since the epoch; None where there is none yet."""
    with suppress(DamagedError, OSError), open_regular(path) as file:
        for _, event in read_events(file, os.fstat(file.fileno()).st_size):
            return 0.0 if event is None else event.at
    return None
