"""Chunks of a log: by byte offset, the last lines, the last line. Never the whole file, whatever its size."""

import codecs
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rekindle.contract.safe_open import open_beneath
from rekindle_service.run_readers.log_spans import Span, data_spans, span_at
from rekindle_service.sanitize import sanitize_line

_BLOCK = 64 * 1024
_MAX_CHARACTER = 4  # bytes, in UTF-8
_LAST_LINE_WINDOW = 8 * 1024
_MAX_LAST_LINE = 200


def _question_marks(error: UnicodeError) -> tuple[str, int]:
    """One ``?`` per undecodable byte: unlike U+FFFD it has the length of what it replaces."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "?" * (error.end - error.start), error.end


SAME_LENGTH = "rekindle-same-length"
codecs.register_error(SAME_LENGTH, _question_marks)


@dataclass(frozen=True, slots=True)
class LogChunk:
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


def read_chunk(file: BinaryIO, offset: int, limit: int) -> LogChunk:
    """At most ``limit`` bytes from ``offset`` on, ending between two characters; where they were removed, what follows.

    The rest of a character that is cut by the limit or not written yet is left to the next chunk, so joined chunks
    give the same text as one read. At the end of the file the next offset may therefore be less than its size.
    """
    span = span_at(file, offset)
    if span is None:
        return LogChunk("", min(offset, size_of(file)), min(offset, size_of(file)))
    offset = span.start
    data = os.pread(file.fileno(), min(max(limit, _MAX_CHARACTER), span.end - offset), offset)
    ends_at_hole = offset + len(data) == span.end < size_of(file)
    whole = data if ends_at_hole else data[: len(data) - _unfinished(data)]
    return LogChunk(whole.decode(errors=SAME_LENGTH), offset, offset + len(whole))


def _unfinished(data: bytes) -> int:
    """How many bytes at the end of ``data`` begin a UTF-8 character without ending it."""
    for length in range(1, min(_MAX_CHARACTER, len(data) + 1)):
        byte = data[-length]
        if byte & 0xC0 == 0x80:
            continue
        needed = 2 if 0xC2 <= byte < 0xE0 else 3 if 0xE0 <= byte < 0xF0 else 4 if 0xF0 <= byte < 0xF5 else 1
        return length if needed > length else 0
    return 0


def read_end(root: Path, path: Path, size: int) -> tuple[int, bytes] | None:
    """The last ``size`` bytes of the file ``path`` beneath ``root`` and where they begin; None where there is none."""
    if (opened := open_beneath(root, path)) is None:
        return None
    with opened as file:
        start = max(size_of(file) - size, 0)
        return start, os.pread(file.fileno(), size, start)


def tail_offset(file: BinaryIO, lines: int, limit: int) -> int:
    """Where the last ``lines`` lines begin, but never more than ``limit`` bytes before the end.

    A last line without its newline counts as one. Reads backwards, block by block.
    """
    size = size_of(file)
    if lines == 0:
        return size
    last = data_spans(file)[-1:]  # what is before a hole does not belong to the last lines
    start = floor = max(size - limit, 0, *(span.start for span in last))
    end, wanted = size, lines + (os.pread(file.fileno(), 1, max(size - 1, 0)) == b"\n")
    while end > floor:
        begin = max(end - _BLOCK, floor)
        block = os.pread(file.fileno(), end - begin, begin)
        found = block.count(b"\n")
        if found >= wanted:
            return begin + _nth_newline_from_the_end(block, wanted) + 1
        wanted -= found
        end = begin
    return start + _continuation_bytes(file, start)


def _nth_newline_from_the_end(block: bytes, n: int) -> int:
    position = len(block)
    for _ in range(n):
        position = block.rindex(b"\n", 0, position)
    return position


def _continuation_bytes(file: BinaryIO, offset: int) -> int:
    """How many bytes at ``offset`` are the rest of a character that began before it; none at the very beginning."""
    if offset == 0:
        return 0
    head = os.pread(file.fileno(), _MAX_CHARACTER - 1, offset)
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
