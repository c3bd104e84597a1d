"""Scalars that a script writes for TensorBoard, copied while it runs to where the page finds them.

The script is not changed for it: its event files are found by their names below its working folder and its snapshot
directory, wherever Lightning, Transformers or a SummaryWriter put them.
"""

import math
import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rekindle.contract.files import open_regular
from rekindle.contract.run_dir.rank_records import MetricPoint
from rekindle.keeper.event_records import DamagedError, Event, read_events
from rekindle.keeper.folder_walk import files_below
from rekindle.training.reporting.metric_log import MetricLog

LOOK_EVERY = 2.0  # seconds
LONGEST_LOOK = 0.1  # seconds: a keeper that reads does not see a rank die
LAST_LOOK = 3.0  # seconds, when the ranks have gone: the next attempt waits for it, where so much is left
MOST_FILES = 1000  # of an attempt; and as many new names are looked at at once
MOST_BYTES = 256 << 20
"""Of the copy. When it has more, nothing is added: a script may log for ever."""
_REST = 20  # times as long as a look has taken is waited for the next one
_MARK = "events.out.tfevents."
_MOST_VALUES = 40  # in a line, so that readers never meet one that is too long for them
_LONGEST_NAME = 200  # characters


@dataclass(slots=True)
class _Followed:
    """An event file of this attempt."""

    path: Path
    prefix: str
    offset: int = 0


class ScalarLog:
    """One per attempt, written by its keeper only. No fsync: it means nothing to a resume.

    A file belongs to the attempt in which its first record was written: others came with the code, or are an earlier
    attempt's.
    """

    def __init__(self, path: Path, folders: Sequence[Path]) -> None:
        self._path, self._folders, self._log = path, folders, MetricLog(path)
        self._begun_at = time.time()
        self._files: list[_Followed] = []
        self._known: set[str] = set()  # paths
        self._root: Path | None = None
        self._next_look = 0.0  # seconds of CLOCK_MONOTONIC

    def look_if_due(self, other_ranks: Collection[int]) -> None:
        """Copy what is new. ``other_ranks``: pids of all ranks but the first, whose files are left alone."""
        now = time.monotonic()
        if now >= self._next_look:
            self._look(other_ranks, LONGEST_LOOK)
            self._next_look = time.monotonic() + max(LOOK_EVERY, _REST * (time.monotonic() - now))

    def finish(self, other_ranks: Collection[int]) -> None:
        """Copy what the ranks have left, now that they are gone."""
        self._look(other_ranks, LAST_LOOK)

    def _look(self, other_ranks: Collection[int], seconds: float) -> None:
        """What a full disk does not take is a gap in the curves, no failure."""
        with suppress(OSError):
            self._find(other_ranks)
            if self._files and not (self._path.exists() and self._path.stat().st_size > MOST_BYTES):
                self._copy(time.monotonic() + seconds)
                self._log.flush()

    def _find(self, other_ranks: Collection[int]) -> None:
        found: list[tuple[float, Path]] = []
        new = (path for path in self._new_paths() if writer_of(path.name) not in other_ranks)
        for path in islice(new, MOST_FILES):
            begun_at = _begun_at(path)
            if begun_at is not None:
                self._known.add(str(path))
                found.append((begun_at, path))
        for begun_at, path in sorted(found):
            if begun_at >= self._begun_at and len(self._files) < MOST_FILES:
                self._root = self._root or path.parent
                self._files.append(_Followed(path, prefix_of(path.parent, self._root)))

    def _new_paths(self) -> Iterator[Path]:
        for folder in self._folders:
            for entry in files_below(folder):
                if _MARK in entry.name and entry.path not in self._known:
                    yield Path(entry.path)

    def _copy(self, deadline: float) -> None:
        """One file at least; those that were not come to come first the next time."""
        for number, file in enumerate(self._files, start=1):
            with suppress(DamagedError, FileNotFoundError):
                self._copy_file(file, deadline)
            if time.monotonic() > deadline:
                self._files = self._files[number:] + self._files[:number]
                return

    def _copy_file(self, followed: _Followed, deadline: float) -> None:
        lines = _Lines(self._log, followed.prefix)
        with open_regular(followed.path) as file, closing(lines):
            file.seek(followed.offset)
            for offset, event in read_events(file, os.fstat(file.fileno()).st_size):
                followed.offset = offset
                if event is not None:
                    lines.add(event)
                if time.monotonic() > deadline:
                    return


class _Lines:
    """Scalars of one file, those of the same step together in one line."""

    def __init__(self, log: MetricLog, prefix: str) -> None:
        self._log, self._prefix = log, prefix
        self._point: MetricPoint | None = None

    def add(self, event: Event) -> None:
        at = event.at if math.isfinite(event.at) else time.time()
        for tag, value in event.scalars:
            name = (self._prefix + tag)[:_LONGEST_NAME]
            point = self._point
            if point is None or point.step != event.step or name in point.values or len(point.values) >= _MOST_VALUES:
                self.close()
                point = self._point = MetricPoint(event.step, None, at)
            point.values[name] = value

    def close(self) -> None:
        if self._point is not None:
            self._log.add(self._point)
        self._point = None


def writer_of(name: str) -> int | None:
    """The pid in the name of an event file, ``events.out.tfevents.<seconds>.<host>.<pid>.<number>``."""
    parts = name.rpartition(_MARK)[2].split(".")
    return int(parts[-2]) if len(parts) >= 4 and parts[-2].isdecimal() else None


def prefix_of(folder: Path, root: Path) -> str:
    """What the names of scalars in ``folder`` begin with: nothing in the attempt's first folder, ``root``.

    Else the way from there: beside ``runs/train`` it is ``val/`` for ``runs/val``. So the names are the same in every
    attempt, though the folders' may hold the time or a number.
    """
    common = 0
    for one, other in zip(folder.parts, root.parts, strict=False):
        if one != other:
            break
        common += 1
    return "".join(f"{part}/" for part in folder.parts[common:])


def _begun_at(path: Path) -> float | None:
    """When the first record was written, in seconds since the epoch; None where there is none yet."""
    with suppress(DamagedError, OSError), open_regular(path) as file:
        for _, event in read_events(file, os.fstat(file.fileno()).st_size):
            return 0.0 if event is None else event.at
    return None
