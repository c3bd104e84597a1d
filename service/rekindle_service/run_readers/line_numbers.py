"""Line numbers in a log of any size: what has been counted once is kept."""

import os
from array import array
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from rekindle_service.run_readers.log_spans import data_spans

_BLOCK = 1 << 20  # bytes
_MAX_COUNTED = 256  # blocks at once: about a tenth of a second
_CACHED = 128  # logs


class _LineCounter:
    """The lines of one log, which only grows."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = array("q", [0])  # newlines before each block

    def newlines_before(self, file: BinaryIO, offset: int) -> int | None:
        """None where too much would have to be counted now."""
        with self._lock:
            block = offset // _BLOCK
            if block - len(self._counts) >= _MAX_COUNTED:
                return None
            while len(self._counts) <= block:
                start = (len(self._counts) - 1) * _BLOCK
                self._counts.append(self._counts[-1] + os.pread(file.fileno(), _BLOCK, start).count(b"\n"))
            return self._counts[block] + os.pread(file.fileno(), offset % _BLOCK, block * _BLOCK).count(b"\n")


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
