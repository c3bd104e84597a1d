"""Where in its log a rank reports the exception that ended it."""

from pathlib import Path

from rekindle_service.jobs.story.tracebacks import MARKER
from rekindle_service.run_readers.logs import read_end

_TAIL = 1 << 20  # bytes at the end of a log that are searched
_MAX_LEAD = 6000  # bytes from the first line of a traceback to its exception that are read with it
_MAX_HEADLINE = 120  # characters


def offset_of_error(root: Path, log: Path, exception: str, message: str) -> int | None:
    """Byte at which the traceback begins, of a very long one the line of its exception; None where it is not found."""
    if (end_of_log := read_end(root, log, _TAIL)) is None:
        return None
    start, data = end_of_log
    headline = f"{exception}: {message.partition(chr(10))[0]}"[:_MAX_HEADLINE].rstrip(": ").encode(errors="replace")
    end = data.rfind(headline)
    begin = data.rfind(MARKER.encode(), 0, None if end < 0 else end)
    if max(begin, end) < 0:
        return None
    if begin >= 0 and (end < 0 or end - begin <= _MAX_LEAD):
        end = begin
    return start + data.rfind(b"\n", 0, end) + 1
