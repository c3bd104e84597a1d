"""Read a log of any size: bytes, chunks of text, lines and their numbers. Never the whole file, and never a hole."""

import codecs
import os
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import BinaryIO, NamedTuple

from rekindle.contract.safe_open import open_beneath
from rekindle_service.sanitize import sanitize_line

_BLOCK = 64 * 1024  # bytes
_MAX_CHARACTER = 4  # bytes, in UTF-8
_LAST_LINE_WINDOW = 8 * 1024
_MAX_LAST_LINE = 200
_MAX_SPANS = 100  # of a file with more holes, which no keeper has made, the rest counts as data
_MAX_TEXT = 4000  # bytes of a line that are shown
_MAX_LINE = 64 * 1024  # bytes: a line is taken to begin at most as far before its end
_COUNTED_BLOCK = 1 << 20  # bytes
_MAX_COUNTED = 256  # such blocks at once: about a tenth of a second
_CACHED = 128  # logs


class Span(NamedTuple):
    """Bytes from ``start`` up to ``end``."""

    start: int
    end: int


def data_spans(file: BinaryIO) -> list[Span]:
    """The spans of the file that have data, ascending; where the file system knows no holes, the whole file."""
    status = os.fstat(file.fileno())
    size, spans, position = status.st_size, list[Span](), 0
    while position < size:
        if len(spans) == _MAX_SPANS:
            return [*spans, Span(position, size)]
        try:
            start = os.lseek(file.fileno(), position, os.SEEK_DATA)
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
        except OSError:  # only a hole follows, or the file system cannot tell
            return spans if spans or status.st_blocks == 0 else [Span(0, size)]
        spans.append(Span(start, min(end, size)))
        position = end
    return spans


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


def _question_marks(error: UnicodeError) -> tuple[str, int]:
    """One ``?`` per undecodable byte: unlike U+FFFD it has the length of what it replaces."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "?" * (error.end - error.start), error.end


SAME_LENGTH = "rekindle-same-length"

codecs.register_error(SAME_LENGTH, _question_marks)
_DECODER = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """Part of a log as text; offsets count bytes of the file, not characters.

    Encoded as UTF-8, the text has exactly ``next_offset - offset`` bytes, whatever garbage the file holds.
    """

    text: str
    offset: int
    next_offset: int


def open_or_empty(root: Path, path: Path) -> BinaryIO:
    """See ``open_beneath``; what is absent reads as an empty file."""
    return open_beneath(root, path) or Path(os.devnull).open("rb")


def size_of(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def read_bytes(file: BinaryIO, offset: int, limit: int) -> tuple[int, bytes]:
    """Up to ``limit`` bytes from ``offset`` on as they were written, and where they begin; of a hole, what follows."""
    if (span := span_at(file, offset)) is None:
        return min(offset, size_of(file)), b""
    return span.start, os.pread(file.fileno(), min(limit, span.end - span.start), span.start)


def read_chunk(file: BinaryIO, offset: int, limit: int) -> ReadChunk:
    """Read up to ``limit`` bytes from ``offset`` on, ending between two characters; of a hole, what follows it.

    The rest of a character that is cut by the limit or not written yet is left to the next chunk, so joined chunks
    give the same text as one read. At the end of the file the next offset may therefore be less than its size.
    """
    span = span_at(file, offset)
    if span is None:
        return ReadChunk("", min(offset, size_of(file)), min(offset, size_of(file)))
    offset = span.start
    data = os.pread(file.fileno(), min(max(limit, _MAX_CHARACTER), span.end - offset), offset)
    decoder = _DECODER(SAME_LENGTH)
    text = decoder.decode(data, final=offset + len(data) == span.end < size_of(file))  # a hole follows
    unfinished, _ = decoder.getstate()
    return ReadChunk(text, offset, offset + len(data) - len(unfinished))


def read_end(root: Path, path: Path, size: int) -> tuple[int, bytes] | None:
    """The last ``size`` bytes of the file ``path`` beneath ``root`` and where they begin; None where there is none."""
    if (opened := open_beneath(root, path)) is None:
        return None
    with opened as file:
        start = max(size_of(file) - size, 0)
        return start, os.pread(file.fileno(), size, start)


def tail_offset(file: BinaryIO, lines: int, limit: int) -> int:
    """Where the last ``lines`` lines begin, but never more than ``limit`` bytes before the end.

    A last line without its newline counts as one.
    """
    size = size_of(file)
    if lines == 0:
        return size
    last = data_spans(file)[-1:]  # what is before a hole does not belong to the last lines
    start = max(size - limit, 0, *(span.start for span in last))
    data = os.pread(file.fileno(), size - start, start)
    position = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return start + (_continuation_bytes(data) if start else 0)
    return start + position + 1


def _continuation_bytes(data: bytes) -> int:
    """How many bytes at the beginning are the rest of a character."""
    head = data[: _MAX_CHARACTER - 1]
    return next((index for index, byte in enumerate(head) if byte & 0xC0 != 0x80), len(head))


def iter_bytes(file: BinaryIO, parts: Iterable[Span | bytes]) -> Iterator[bytes]:
    """Spans of the file, block by block, and what is to be between them; closes ``file`` at the end or when dropped."""
    with file:
        for part in parts:
            if isinstance(part, bytes):
                yield part
                continue
            start, end = part
            while start < end and (block := os.pread(file.fileno(), min(_BLOCK, end - start), start)):
                start += len(block)
                yield block


def last_line(file: BinaryIO) -> str | None:
    """The last line that shows anything, as a terminal would show it, at most 200 characters, free of control bytes.

    Of a progress bar, which overwrites itself with carriage returns, it is the latest state.
    """
    window = os.pread(file.fileno(), _LAST_LINE_WINDOW, max(size_of(file) - _LAST_LINE_WINDOW, 0))
    for line in reversed(window.decode(errors="replace").split("\n")):
        for state in reversed(line.split("\r")):
            shown = sanitize_line(state).strip()
            if shown:
                return shown[:_MAX_LAST_LINE]
    return None


class Scanned(NamedTuple):
    """No line begins or ends up to byte ``offset``: a reader may stop here and continue later."""

    offset: int


def lines_forward(file: BinaryIO, begin: int, end: int) -> Iterator[Span | Scanned]:
    """The lines, each with its newline, which is at ``begin`` or later and before ``end``, ascending.

    After a removed part, the first may be the rest of one.
    """
    for span in _parts(file, begin, end):
        start = line_start(file, span.start)
        for position in range(span.start, span.end, _BLOCK):
            block = os.pread(file.fileno(), min(_BLOCK, span.end - position), position)
            at = -1
            while (at := block.find(b"\n", at + 1)) >= 0:
                yield Span(start, position + at + 1)
                start = position + at + 1
            yield Scanned(position + len(block))


def lines_backward(file: BinaryIO, begin: int, end: int) -> Iterator[Span | Scanned]:
    """The same lines, descending."""
    for span in reversed(_parts(file, begin, end)):
        pending: int | None = None  # end of the line whose start is looked for
        for position in range(span.end, span.start, -_BLOCK):
            low = max(position - _BLOCK, span.start)
            block = os.pread(file.fileno(), position - low, low)
            at = len(block)
            while (at := block.rfind(b"\n", 0, at)) >= 0:
                if pending is not None:
                    yield Span(low + at + 1, pending)
                pending = low + at + 1
            yield Scanned(low if pending is None else pending)
        if pending is not None:
            yield Span(line_start(file, pending - 1), pending)


def _parts(file: BinaryIO, begin: int, end: int) -> list[Span]:
    """The range without what was removed of the log."""
    parts = [Span(max(span.start, begin), min(span.end, end)) for span in data_spans(file)]
    return [part for part in parts if part.start < part.end]


def line_start(file: BinaryIO, offset: int) -> int:
    """Where the line begins that has byte ``offset``; what was removed of the log reads as zeros."""
    low = max(offset - _MAX_LINE, 0)
    before = os.pread(file.fileno(), offset - low, low)
    return low + max(before.rfind(b"\n"), before.rfind(b"\0")) + 1


def line_text(file: BinaryIO, line: Span) -> str:
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


class _LineCounter:
    """The lines of one log, which only grows."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = array("q", [0])  # newlines before each block

    def newlines_before(self, file: BinaryIO, offset: int) -> int | None:
        """None where too much would have to be counted now."""
        with self._lock:
            block = offset // _COUNTED_BLOCK
            if block - len(self._counts) >= _MAX_COUNTED:
                return None
            while len(self._counts) <= block:
                start = (len(self._counts) - 1) * _COUNTED_BLOCK
                self._counts.append(self._counts[-1] + os.pread(file.fileno(), _COUNTED_BLOCK, start).count(b"\n"))
            return self._counts[block] + os.pread(file.fileno(), offset % _COUNTED_BLOCK, block * _COUNTED_BLOCK).count(
                b"\n"
            )


@lru_cache(maxsize=_CACHED)
def _counter(_path: Path, _inode: int) -> _LineCounter:
    return _LineCounter()


def line_number(path: Path, file: BinaryIO, offset: int) -> int | None:
    """The number, from 1, of the line that has byte ``offset`` of the log at ``path``.

    None after a removed part, whose lines nobody has counted, and far within a log of gigabytes.
    """
    spans = data_spans(file)
    if offset > 0 and not (spans and spans[0].start == 0 and offset <= spans[0].end):
        return None
    before = _counter(path, os.fstat(file.fileno()).st_ino).newlines_before(file, offset)
    return None if before is None else before + 1
