"""The ``Range`` header (RFC 9110, section 14), as far as a log needs it: one range of bytes."""

import re

_ONE_RANGE = re.compile(r"bytes=\s*(?:(\d{1,18})-(\d{1,18})?|-(\d{1,18}))\s*", re.ASCII | re.IGNORECASE)


class UnsatisfiableRangeError(Exception):
    """The range lies wholly behind the end."""


def parse_range(header: str, size: int) -> tuple[int, int] | None:
    """First byte and the byte behind the last one; None where the header must be ignored.

    That is so for several ranges, other units and bad syntax: the answer is then the ordinary one.
    Raises UnsatisfiableRangeError.
    """
    match = _ONE_RANGE.fullmatch(header)
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
