"""The lines of a log that end within a range of bytes, in either direction. Never the whole file, whatever its size."""

import os
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from rekindle_service.run_readers.log_spans import Span, data_spans
from rekindle_service.sanitize import sanitize_line

_BLOCK = 64 * 1024  # bytes
_MAX_TEXT = 4000  # bytes of a line that are shown
_MAX_LINE = 64 * 1024  # bytes: a line is taken to begin at most as far before its end


class Line(NamedTuple):
    """Bytes from ``start`` up to ``end``, with its newline; of a log that lost its middle, the first may be a rest."""

    start: int
    end: int


class Scanned(NamedTuple):
    """No line begins or ends up to byte ``offset``: a reader may stop here and continue later."""

    offset: int


def lines_forward(file: BinaryIO, begin: int, end: int) -> Iterator[Line | Scanned]:
    """The lines whose newline is at ``begin`` or later and before ``end``, ascending."""
    for span in _parts(file, begin, end):
        start = line_start(file, span.start)
        for position in range(span.start, span.end, _BLOCK):
            block = os.pread(file.fileno(), min(_BLOCK, span.end - position), position)
            at = -1
            while (at := block.find(b"\n", at + 1)) >= 0:
                yield Line(start, position + at + 1)
                start = position + at + 1
            yield Scanned(position + len(block))


def lines_backward(file: BinaryIO, begin: int, end: int) -> Iterator[Line | Scanned]:
    """The same lines, descending."""
    for span in reversed(_parts(file, begin, end)):
        pending: int | None = None  # end of the line whose start is looked for
        for position in range(span.end, span.start, -_BLOCK):
            low = max(position - _BLOCK, span.start)
            block = os.pread(file.fileno(), position - low, low)
            at = len(block)
            while (at := block.rfind(b"\n", 0, at)) >= 0:
                if pending is not None:
                    yield Line(low + at + 1, pending)
                pending = low + at + 1
            yield Scanned(low if pending is None else pending)
        if pending is not None:
            yield Line(line_start(file, pending - 1), pending)


def _parts(file: BinaryIO, begin: int, end: int) -> list[Span]:
    """The range without what was removed of the log."""
    parts = [Span(max(span.start, begin), min(span.end, end)) for span in data_spans(file)]
    return [part for part in parts if part.start < part.end]


def line_start(file: BinaryIO, offset: int) -> int:
    """Where the line begins that has byte ``offset``; what was removed of the log reads as zeros."""
    low = max(offset - _MAX_LINE, 0)
    before = os.pread(file.fileno(), offset - low, low)
    return low + max(before.rfind(b"\n"), before.rfind(b"\0")) + 1


def line_text(file: BinaryIO, line: Line) -> str:
    """The line as a terminal would show it, free of control characters, cut off after 4,000 bytes.

    Of a progress bar, which overwrites itself with carriage returns, it is the latest state.
    """
    length = line.end - line.start
    data = os.pread(file.fileno(), min(length, _MAX_TEXT), line.start)
    if length > _MAX_TEXT:
        tail = os.pread(file.fileno(), _MAX_TEXT, line.end - _MAX_TEXT)
        data = tail if b"\r" in tail.rstrip(b"\r\n") else data + "…".encode()
    states = data.rstrip(b"\r\n").split(b"\r")
    shown = next((state for state in reversed(states) if state.strip()), b"")
    return sanitize_line(shown.decode(errors="replace"))
