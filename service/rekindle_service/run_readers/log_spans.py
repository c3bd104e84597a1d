"""What is left of a log: the keeper may have freed the part between its beginning and its end, which is a hole now.

Offsets stay what they were. A reader asks for the spans that have data and never reads a hole: it would get zeros, as
many as a script cares to pretend.
"""

import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

_MAX_SPANS = 100  # of a file with more holes, which no keeper has made, the rest counts as data


class Span(NamedTuple):
    """Bytes from ``start`` up to ``end``."""

    start: int
    end: int


def data_spans(file: BinaryIO) -> list[Span]:
    """The spans of the file that have data, ascending; where the file system knows no holes, the whole file."""
    size = os.fstat(file.fileno()).st_size
    spans: list[Span] = []
    position = 0
    while position < size:
        if len(spans) == _MAX_SPANS:
            return [*spans, Span(position, size)]
        try:
            start = os.lseek(file.fileno(), position, os.SEEK_DATA)
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
        except OSError:  # only a hole follows, or the file system cannot tell
            return spans if spans or _is_hole(file) else [Span(0, size)]
        spans.append(Span(start, min(end, size)))
        position = end
    return spans


def _is_hole(file: BinaryIO) -> bool:
    """Whether the file has no data at all."""
    return os.fstat(file.fileno()).st_blocks == 0


def span_at(file: BinaryIO, offset: int) -> Span | None:
    """The data at ``offset``, or where it is in a hole, after it; None where nothing follows."""
    for start, end in data_spans(file):
        if offset < end:
            return Span(max(start, offset), end)
    return None


def hole_at(file: BinaryIO, offset: int) -> Span | None:
    """The hole that ``offset`` is in; None where there is data."""
    begin = 0
    for start, end in data_spans(file):
        if offset < start:
            return Span(begin, start) if offset >= begin else None
        begin = end
    return None


def hole_note(size: int) -> str:
    """What people read in place of a hole."""
    return f"[rekindle: {size:,} bytes were removed here, since the log was larger than log_bytes]"


def without_holes(file: BinaryIO) -> Iterator[Span | bytes]:
    """The spans with data, and between two of them a line about what is missing."""
    position = 0
    for start, end in data_spans(file):
        if start > position:
            yield f"\n{hole_note(start - position)}\n".encode()
        yield Span(start, end)
        position = end


def total_size(parts: Iterable[Span | bytes]) -> int:
    """Bytes of what ``without_holes`` yields."""
    return sum(len(part) if isinstance(part, bytes) else part.end - part.start for part in parts)
