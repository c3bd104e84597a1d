"""The order in which all logs of an attempt grew, as the keepers of its machines have recorded it."""

import heapq
import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from rekindle.contract.files import json_lines
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.attempt_samples import LogName, LogSizes, valid_sizes
from rekindle.contract.run_dir.paths import STREAMS, RunDir
from rekindle_service.run_readers.log_files import open_or_empty, size_of

_MAX_BYTES = 16 << 20  # of a file that the keeper holds at a fraction of it
_MAX_LINE = 1 << 20  # bytes: a line of a job of 4,096 ranks has a tenth of it
_CACHED = 16  # attempts; of the largest record the index takes 10 MB


class LogRange(NamedTuple):
    """Bytes of one log that came between two records; ``at``: seconds since the epoch, None where nobody knows."""

    log: LogName
    begin: int
    end: int
    at: float | None


class LogTimeline:
    """The recorded ranges of all logs, numbered from 0 in the order in which they came.

    Times never decrease along the ranges: where the clock was set back, later ranges keep the latest time before. One
    thread at a time may append, while others read.
    """

    def __init__(self) -> None:
        self._logs, self._at = array("i"), array("d")  # log and time by range
        self._begins, self._ends = array("q"), array("q")
        self._of_log: dict[int, array[int]] = {}  # numbers of the ranges by log, ascending

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> LogRange:
        return LogRange(_name(self._logs[number]), self._begins[number], self._ends[number], self._at[number])

    def append(self, sizes: LogSizes) -> None:
        latest = max(sizes.at, self._at[-1]) if self._at else sizes.at
        for name, size in sorted(sizes.sizes.items()):
            begin = self.recorded_bytes(name)
            if size > begin:
                self._logs.append(_key(name))
                self._at.append(latest)
                self._begins.append(begin)
                self._ends.append(size)
                self._of_log.setdefault(_key(name), array("i")).append(len(self) - 1)

    def recorded_bytes(self, log: LogName) -> int:
        numbers = self._of_log.get(_key(log))
        return self._ends[numbers[-1]] if numbers else 0

    def number_at(self, log: LogName, offset: int) -> int | None:
        """The number of the range that has byte ``offset`` of ``log``; None where it is not recorded."""
        numbers = self.numbers([log])
        index = bisect_right(numbers, offset, key=self._ends.__getitem__)
        return numbers[index] if index < len(numbers) else None

    def history(self, log: LogName, begin: int, end: int) -> list[tuple[int, float]]:
        """Where ranges of ``log`` end and when they came, for those with a byte from ``begin`` up to ``end``."""
        numbers = self.numbers([log])
        first = bisect_right(numbers, begin, key=self._ends.__getitem__)
        last = bisect_left(numbers, end, key=self._begins.__getitem__)
        return [(self._ends[number], self._at[number]) for number in numbers[first:last]]

    def number_since(self, at: float) -> int:
        """The first range that came at ``at`` (seconds since the epoch) or later."""
        return bisect_left(self._at, at)

    def numbers(self, logs: Sequence[LogName]) -> Sequence[int]:
        """The numbers of all ranges of ``logs``, ascending."""
        found = [self._of_log[key] for log in logs if (key := _key(log)) in self._of_log]
        if len(found) == len(self._of_log):
            return range(len(self))
        return found[0] if len(found) == 1 else array("i", heapq.merge(*found))


def _key(log: LogName) -> int:
    return log.rank * len(STREAMS) + STREAMS.index(log.stream)


def _name(key: int) -> LogName:
    return LogName(key // len(STREAMS), STREAMS[key % len(STREAMS)])


class _GrowingRecord:
    """The index of one attempt, extended by what its keepers have appended since."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._times = LogTimeline()
        self._read: dict[Path, tuple[int, int]] = {}  # inode, bytes

    def update(self, root: Path, paths: list[Path]) -> LogTimeline:
        """Read what is new, or all where a keeper has merged lines of its record, which replaces the file."""
        with self._lock:
            if not all(self._continues(root, path) for path in paths):
                self._times, self._read = LogTimeline(), {}
            new = [list(self._new_lines(root, path)) for path in paths]
            for sizes in heapq.merge(*new, key=lambda sizes: sizes.at):
                self._times.append(sizes)
            return self._times

    def _continues(self, root: Path, path: Path) -> bool:
        with open_or_empty(root, path) as file:
            inode, read = self._read.get(path, (0, 0))
            return read == 0 or (os.fstat(file.fileno()).st_ino == inode and size_of(file) >= read)

    def _new_lines(self, root: Path, path: Path) -> Iterator[LogSizes]:
        with open_or_empty(root, path) as file:
            inode, (_, offset) = os.fstat(file.fileno()).st_ino, self._read.get(path, (0, 0))
            for after, line in json_lines(file, offset, max_line=_MAX_LINE, end=_MAX_BYTES):
                self._read[path] = inode, after
                yield from valid_sizes([(after, line)])


@lru_cache(maxsize=_CACHED)
def _record(_: Path) -> _GrowingRecord:
    return _GrowingRecord()


def read_log_times(run_dir: RunDir, attempt: AttemptInfo) -> LogTimeline:
    """The timeline of all machines of the attempt until now; empty for an attempt without a record."""
    directory = run_dir.attempt(attempt.number)
    nodes = range(max(1, len(attempt.hosts)))
    return _record(directory.root).update(run_dir.root, [directory.log_times_of(node) for node in nodes])
