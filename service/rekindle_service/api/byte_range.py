"""The ``Range`` header (RFC 9110, section 14), restricted to what a log needs: one range of bytes."""

import re

_SINGLE_RANGE = re.compile(r"bytes=\s*(?:(\d{1,18})-(\d{1,18})?|-(\d{1,18}))\s*", re.ASCII | re.IGNORECASE)


class UnsatisfiableRangeError(Exception):
    """The range starts after the last byte."""


def parse_range(header: str, size: int) -> tuple[int, int] | None:
    """The first byte and the byte after the last one; None where the header must be ignored.

    Several ranges, other units and invalid syntax are ignored: the response is then the ordinary one. Raises
    UnsatisfiableRangeError.
    """
    match = _SINGLE_RANGE.fullmatch(header)
    if match is None:
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        start, end = max(size - int(suffix), 0), size
    else:
        start, end = int(first), size if last is None else min(int(last) + 1, size)
        if last is not None and int(last) < start:
            return None
    if start >= end:
        raise UnsatisfiableRangeError(header)
    return start, end
