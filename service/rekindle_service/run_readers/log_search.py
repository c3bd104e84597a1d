"""Searching a log of any size: block by block, and never more than a bounded part of it at a time.

Regular expressions are RE2's: people search what others have written, and with Python's own a line of thirty characters
can hold up the whole server. RE2 takes time linear in the text, whatever the expression and the text are.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import re2

from rekindle.contract.field_texts import Described
from rekindle_service.run_readers.log_files import (
    Scanned,
    Span,
    data_spans,
    line_text,
    lines_backward,
    lines_forward,
    size_of,
)
from rekindle_service.sanitize import sanitize_line

_BLOCK = 1 << 20  # bytes
_BEFORE = 200  # bytes of a line that are shown before a match, and within which its beginning is looked for
_AFTER = 300
_MAX_REGEX_MEMORY = 256 << 10  # bytes of one compiled expression; re2 keeps the latest 128
_REGEX_SYNTAX = "the syntax is that of RE2: https://github.com/google/re2/wiki/Syntax"
_REGEX_HINTS = {
    r"invalid perl operator: \(\?<?[=!]": "RE2 has no look-ahead and no look-behind; write the text itself",
    r"invalid escape sequence: \\[1-9]": "RE2 has no back-references",
    r"invalid escape sequence: \\Z": r"write \z or $ for the end of the line",
    "repetition operator": r"write \ before it to search for the character itself",
    "repetition size": "at most 1000 repetitions are possible, the smaller number first",
    "too large": "repeat less",
}


Wanted = bytes | Callable[[str], bool]
"""A text, or what a line must fulfil, see ``line_matcher``."""


class RegexError(ValueError):
    """An expression that is not valid, or not possible in linear time; the message says what to write instead."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Where a search stops for now: whichever is reached first."""

    matches: int = 100
    bytes: int = 256 << 20
    seconds: float = 0.5


@dataclass(frozen=True, slots=True)
class Match(Described):
    """A match."""

    offset: int
    """Byte offset of the match in the log."""
    line_offset: int
    """Byte offset of the beginning of its line, or of at most 200 bytes before the match."""
    text: str
    """Text around the match."""


@dataclass(frozen=True, slots=True)
class SearchPage(Described):
    """Matches in the order of the search."""

    items: list[Match]
    """Matches of this page."""
    next: int | None
    """Byte offset at which the search continues in the same direction, for `from`; null when it is complete."""
    size: int
    """Size of the log in bytes."""


def search(file: BinaryIO, wanted: Wanted, start: int, *, backwards: bool, limits: SearchLimits) -> SearchPage:
    """Find a text, or the lines with a match of an expression, from byte ``start`` on or among what is before it."""
    if isinstance(wanted, bytes):
        return _search_text(file, wanted, start, backwards=backwards, limits=limits)
    return _search_lines(file, wanted, start, backwards=backwards, limits=limits)


def _search_text(file: BinaryIO, query: bytes, start: int, *, backwards: bool, limits: SearchLimits) -> SearchPage:
    """Find ``query`` from byte ``start`` on, or among what begins before it, in the order of reading.

    A query without a capital letter finds capitals, too (ASCII). Precondition: it is not empty.
    """
    size = size_of(file)
    deadline = time.monotonic() + limits.seconds
    hits: list[int] = []
    position, searched = min(start, size), 0
    for begin, end in _blocks(file, position, size, backwards=backwards):
        for hit in _hits(file, query, begin, end, backwards=backwards):
            hits.append(hit)
            if len(hits) == limits.matches:
                return SearchPage([_match(file, hit) for hit in hits], hit if backwards else hit + 1, size)
        position, searched = (begin if backwards else end), searched + end - begin
        if searched >= limits.bytes or time.monotonic() > deadline:
            break
    else:
        position = 0 if backwards else size  # what follows was removed
    finished = position <= 0 if backwards else position >= size
    return SearchPage([_match(file, hit) for hit in hits], None if finished else position, size)


def line_matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a line has a match of ``pattern``; without a capital letter it ignores case. Raises RegexError."""
    options = re2.Options()
    options.max_mem = _MAX_REGEX_MEMORY
    options.log_errors = False
    letters = re.sub(r"\\.", "", pattern)
    options.case_sensitive = letters != letters.lower()
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise RegexError(_explain(error.args[0].decode(errors="replace"))) from None
    return lambda line: compiled.search(line) is not None


def _explain(problem: str) -> str:
    hints = [hint for cause, hint in _REGEX_HINTS.items() if re.search(cause, problem)]
    return "; ".join([problem, *hints, _REGEX_SYNTAX])


def _search_lines(
    file: BinaryIO, accept: Callable[[str], bool], start: int, *, backwards: bool, limits: SearchLimits
) -> SearchPage:
    """Find the whole lines that ``accept`` takes: those that begin at byte ``start`` or later, or end before it."""
    size = size_of(file)
    deadline = time.monotonic() + limits.seconds
    found: list[Match] = []
    start = min(start, size)
    for each in lines_backward(file, 0, start) if backwards else lines_forward(file, start, size):
        position = each.offset if isinstance(each, Scanned) else each.start if backwards else each.end
        if isinstance(each, Span) and (backwards or each.start >= start) and accept(text := line_text(file, each)):
            found.append(Match(each.start, each.start, text[: _BEFORE + _AFTER]))
        if len(found) == limits.matches or time.monotonic() > deadline:
            return SearchPage(found, position, size)
    return SearchPage(found, None, size)


def _blocks(file: BinaryIO, start: int, size: int, *, backwards: bool) -> Iterator[tuple[int, int]]:
    """Parts of the log between ``start`` and its end, or its beginning, without what was removed of it."""
    for span in reversed(data_spans(file)) if backwards else data_spans(file):
        if backwards:
            for end in range(min(start, span.end), span.start, -_BLOCK):
                yield max(end - _BLOCK, span.start), end
        else:
            for begin in range(max(start, span.start), min(size, span.end), _BLOCK):
                yield begin, min(begin + _BLOCK, span.end, size)


def _hits(file: BinaryIO, query: bytes, begin: int, end: int, *, backwards: bool) -> Iterator[int]:
    """Where ``query`` begins within the block; it may end after it."""
    data = os.pread(file.fileno(), end - begin + len(query) - 1, begin)
    if query == query.lower():
        data = data.lower()
    at = data.rfind(query) if backwards else data.find(query)
    while at >= 0:
        yield begin + at
        at = data.rfind(query, 0, at + len(query) - 1) if backwards else data.find(query, at + 1)


def _match(file: BinaryIO, hit: int) -> Match:
    """The match within its line, free of control characters."""
    low = max(hit - _BEFORE, 0)
    before = os.pread(file.fileno(), hit - low, low)
    line_offset = low + before.rfind(b"\n") + 1
    line = os.pread(file.fileno(), hit - line_offset + _AFTER, line_offset)
    end = line.find(b"\n", hit - line_offset)
    return Match(hit, line_offset, sanitize_line(line[: end if end >= 0 else None].decode(errors="replace")))
