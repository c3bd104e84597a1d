"""All logs of an attempt as one, in the order in which their lines came, read page by page from any position.

A line's position is where its end came. Lines that came between two records of the keeper (a quarter of a second) are
in the order of ranks and streams. Memory is bounded by the page, whatever the length of the logs and their number.
"""

import os
import re
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import BinaryIO, NamedTuple, Self

from rekindle.contract.field_texts import Described
from rekindle.contract.job_options import MAX_RANKS
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.attempt_samples import LogName
from rekindle.contract.run_dir.paths import STREAMS, RunDir
from rekindle_service.run_readers.log_files import (
    Scanned,
    Span,
    hole_at,
    line_start,
    line_text,
    lines_backward,
    lines_forward,
    open_or_empty,
    size_of,
)
from rekindle_service.run_readers.log_timeline import LogRange, LogTimeline, read_log_times

_MAX_OPEN = 64  # files
_RECORD_DELAY = 2.0  # seconds after which bytes that no keeper has recorded will not be recorded any more
_POSITION = re.compile(
    rf"(?P<rank>\d{{1,4}})-(?P<stream>{'|'.join(STREAMS)})-(?P<offset>\d{{1,15}})-(?P<anchor>\d{{1,15}})", re.ASCII
)
_HEAD = 200  # characters of a line in which its level is looked for
_ERROR = (
    r"\b(?:CRITICAL|FATAL|ERROR|Fatal Python error|Traceback \(most recent call last\)|[A-Z]\w*(?:Error|Exception):)"
)
_WARNING = r"\b(?:WARN|WARNING|[A-Z]\w*Warning:)|^\[W\d{4} "
_DEBUG = r"\b(?:DEBUG|TRACE)\b"
_PATTERNS = [(re.compile(_ERROR), "error"), (re.compile(_WARNING), "warning"), (re.compile(_DEBUG), "debug")]


class LogLevel(StrEnum):
    """Ascending; a line without a word of its level counts as information."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    def includes(self, level: "LogLevel") -> bool:
        """Whether a filter that shows this level and what is more serious shows ``level``."""
        return _ORDER[level] >= _ORDER[self]


_ORDER = {level: index for index, level in enumerate(LogLevel)}


def level_of(text: str) -> LogLevel:
    """The most serious level that the beginning of a line names."""
    head = text[:_HEAD]
    return next((LogLevel(level) for pattern, level in _PATTERNS if pattern.search(head)), LogLevel.INFO)


class Position(NamedTuple):
    """Between two lines: ``offset`` in a log, in the range that has its byte ``anchor``."""

    log: LogName
    offset: int
    anchor: int

    @classmethod
    def after(cls, log: LogName, end: int) -> Self:
        """The position after the line or the range that ends at byte ``end``."""
        return cls(log, end, end - 1)

    def __str__(self) -> str:
        return f"{self.log.rank}-{self.log.stream}-{self.offset}-{self.anchor}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError where ``text`` is no position."""
        found = _POSITION.fullmatch(text)
        if found is None or int(found["rank"]) >= MAX_RANKS:
            raise ValueError(f"{text[:100]!r} is no position in a log")
        return cls(LogName(int(found["rank"]), found["stream"]), int(found["offset"]), int(found["anchor"]))


@dataclass(frozen=True, slots=True)
class TimedLine(Described):
    """One line of a log."""

    rank: int
    """Global rank."""
    stream: str
    """`stdout` or `stderr`."""
    offset: int
    """Byte offset of its beginning in the log of its rank and stream."""
    end: int
    """Byte offset of its end."""
    at: float | None
    """Seconds since the epoch, accurate to a quarter of a second; null where nobody has recorded it."""
    level: LogLevel
    """Severity, as its text suggests."""
    text: str
    """Its text without control characters, at most 4,000 bytes; of a progress bar the last state."""
    removed: int = 0
    """Number of bytes before it that were removed, since the log was larger than the setting `log_bytes`."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Where a page ends: whichever is reached first."""

    lines: int
    seconds: float = 0.5


@dataclass(frozen=True, slots=True)
class LinePage:
    """Lines in the order in which they came. ``next`` and ``previous`` are the positions after and before them."""

    lines: list[TimedLine]
    next: Position | None
    previous: Position | None
    complete: bool  # nothing more in the direction of reading, at present


@dataclass(slots=True)
class _Start:
    """The range, by its index, and where in it."""

    index: int
    offset: int | None = None


Accept = Callable[[TimedLine], bool]


class MergedLog(AbstractContextManager["MergedLog"]):
    """Some logs of one attempt, for one request."""

    def __init__(self, run_dir: RunDir, attempt: AttemptInfo, logs: Sequence[LogName], *, over: bool) -> None:
        """``over``: nothing more will be written or recorded."""
        self._files = _Files(run_dir, attempt.number)
        self._logs = sorted(logs)
        self._times = read_log_times(run_dir, attempt)
        self._numbers = self._times.numbers(self._logs)
        self._recorded = len(self._numbers)
        self._rest = _unrecorded(self._files, self._times, self._logs, over=over)

    def __exit__(self, *_: object) -> None:
        self._files.close()

    @property
    def has_times(self) -> bool:
        """Whether a keeper has recorded when the lines came; otherwise they are in the order of ranks and streams."""
        return len(self._times) > 0

    def after(self, position: Position | None, limits: ReadLimits, accept: Accept) -> LinePage:
        """The lines after ``position``, or from the beginning."""
        start = _Start(0) if position is None else self._find(position)
        return self._forward(start, position, limits, accept)

    def since(self, at: float, limits: ReadLimits, accept: Accept) -> LinePage:
        """The lines that came at ``at`` (seconds since the epoch) or later."""
        index = bisect_left(self._numbers, self._times.number_since(at))
        before = None if index == 0 else self._range(index - 1)
        position = None if before is None else Position.after(before.log, before.end)
        return self._forward(_Start(index), position, limits, accept)

    def before(self, position: Position | None, limits: ReadLimits, accept: Accept) -> LinePage:
        """The lines before ``position``, or the last ones."""
        count = self._recorded + len(self._rest)
        start = _Start(count - 1) if position is None else self._find(position)
        lines, reached, complete = _take(self._lines(start, backwards=True), limits, accept)
        lines.reverse()
        after = position
        if lines:
            after = Position.after(LogName(lines[-1].rank, lines[-1].stream), lines[-1].end)
        elif position is None and count:
            after = Position.after(self._range(count - 1).log, self._range(count - 1).end)
        return LinePage(lines, after, position if reached is None else reached, complete)

    def unfinished(self) -> list[TimedLine]:
        """The last line of each log if it has no end yet, such as a progress bar or a prompt."""
        found = [self._unfinished(log) for log in self._logs]
        return [line for line in found if line is not None]

    def _unfinished(self, log: LogName) -> TimedLine | None:
        file = self._files[log]
        size = size_of(file)
        start = line_start(file, size) if size else 0
        text = line_text(file, Span(start, size)) if start < size else ""
        return TimedLine(*log, start, size, None, level_of(text), text) if text else None

    def _forward(self, start: _Start, position: Position | None, limits: ReadLimits, accept: Accept) -> LinePage:
        lines, reached, complete = _take(self._lines(start, backwards=False), limits, accept)
        first = lines[0] if lines else None
        before = position if first is None else Position(LogName(first.rank, first.stream), first.offset, first.end - 1)
        return LinePage(lines, position if reached is None else reached, before, complete)

    def _range(self, index: int) -> LogRange:
        return self._times[self._numbers[index]] if index < self._recorded else self._rest[index - self._recorded]

    def _find(self, position: Position) -> _Start:
        """A position in a log that is not among these, or beyond what is known, is after the last line."""
        log, offset, anchor = position
        if log not in self._logs:
            return _Start(self._recorded + len(self._rest))
        if (number := self._times.number_at(log, anchor)) is not None:
            return _Start(bisect_left(self._numbers, number), offset)
        found = [index for index, each in enumerate(self._rest) if each.log == log and each.begin <= anchor < each.end]
        return _Start(self._recorded + (found[0] if found else len(self._rest)), offset)

    def _lines(self, start: _Start, *, backwards: bool) -> Iterator[tuple[Position, TimedLine | None]]:
        """Each line with the position that reading it reaches, and positions within long parts without any."""
        last = self._recorded + len(self._rest) - 1
        for index in range(min(start.index, last), -1, -1) if backwards else range(start.index, last + 1):
            log, begin, end, at = self._range(index)
            if index == start.index and start.offset is not None:
                begin, end = (begin, min(end, start.offset)) if backwards else (max(begin, start.offset), end)
            file = self._files[log]
            for found in lines_backward(file, begin, end) if backwards else lines_forward(file, begin, end):
                if isinstance(found, Scanned):
                    offset = found.offset
                    yield Position(log, offset, offset) if backwards else Position.after(log, offset), None
                else:
                    reached = Position(log, found.start, found.end - 1) if backwards else Position.after(log, found.end)
                    yield reached, _read(file, log, found, at)


def _read(file: BinaryIO, log: LogName, line: Span, at: float | None) -> TimedLine:
    text = line_text(file, line)
    hole = hole_at(file, line.start - 1) if line.start and os.pread(file.fileno(), 1, line.start - 1) == b"\0" else None
    removed = 0 if hole is None else hole.end - hole.start
    return TimedLine(*log, line.start, line.end, at, level_of(text), text, removed)


def _take(
    read: Iterator[tuple[Position, TimedLine | None]], limits: ReadLimits, accept: Accept
) -> tuple[list[TimedLine], Position | None, bool]:
    """A page of what is read, the position that was reached, and whether nothing follows."""
    deadline = time.monotonic() + limits.seconds
    lines: list[TimedLine] = []
    reached: Position | None = None
    for reached, line in read:
        if line is not None and accept(line):
            lines.append(line)
        if len(lines) == limits.lines or time.monotonic() > deadline:
            return lines, reached, False
    return lines, reached, True


def _unrecorded(files: "_Files", times: LogTimeline, logs: Sequence[LogName], *, over: bool) -> list[LogRange]:
    """Find bytes whose times no keeper has recorded or will: the attempt is too old, or its keeper was killed."""
    now, found = time.time(), list[LogRange]()
    for log in logs:
        status = os.fstat(files[log].fileno())
        recorded = times.recorded_bytes(log)
        if status.st_size > recorded and (over or not 0 <= now - status.st_mtime < _RECORD_DELAY):
            found.append(LogRange(log, recorded, status.st_size, status.st_mtime if len(times) else None))
    return sorted(found, key=lambda each: each.at or 0.0)


@dataclass(slots=True)
class _Files:
    """Opened on demand, and not more than a few at once."""

    run_dir: RunDir
    attempt: int
    _open: OrderedDict[LogName, BinaryIO] = field(default_factory=OrderedDict)

    def __getitem__(self, log: LogName) -> BinaryIO:
        if log in self._open:
            self._open.move_to_end(log)
            return self._open[log]
        if len(self._open) == _MAX_OPEN:
            self._open.popitem(last=False)[1].close()
        path = self.run_dir.attempt(self.attempt).rank(log.rank).log(log.stream)
        return self._open.setdefault(log, open_or_empty(self.run_dir.root, path))

    def close(self) -> None:
        for file in self._open.values():
            file.close()
