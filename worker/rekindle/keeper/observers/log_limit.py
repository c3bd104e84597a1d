"""The space that logs take: where a log has more, the part between its beginning and its end is freed.

Ranks write to their logs by themselves, also from C libraries and child processes, so nothing can stand between them
and the file. The file keeps its length and every byte its offset; what is freed reads as a hole.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from rekindle.contract.punch_hole import BLOCK, punch_hole

INTERVAL = 1.0  # seconds
_FIRST_SHARE = 8  # of the limit, for the beginning: where a script prints what it was started with
_STEP_SHARE = 16  # of the limit, by which a log may exceed it before more is freed
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LogLimit:
    """One per attempt. A log that cannot be shortened stays: of another file system, or not a regular file."""

    def __init__(self, limit: int | None, logs: Callable[[], Iterable[Path]]) -> None:
        """``limit``: bytes that each of ``logs`` may take, None for any number."""
        self._limit, self._logs = limit, logs
        self._freed: dict[Path, int] = {}  # where the hole ends
        self._next = 0.0  # seconds of CLOCK_MONOTONIC

    def apply_if_due(self) -> None:
        if time.monotonic() >= self._next:
            self.apply()
            self._next = time.monotonic() + INTERVAL

    def apply(self) -> None:
        """Free what each log has too much."""
        if self._limit is not None:
            for log in self._logs():
                with suppress(OSError):
                    self._shorten(log, self._limit)

    def _shorten(self, log: Path, limit: int) -> None:
        first = _round_up(limit // _FIRST_SHARE)
        begin = max(first, self._freed.get(log, 0))
        if log.lstat().st_size - begin <= limit - first + limit // _STEP_SHARE:
            return
        fd = os.open(log, _OPEN)
        try:
            status = os.fstat(fd)
            end = (status.st_size - (limit - first)) // BLOCK * BLOCK
            if stat.S_ISREG(status.st_mode) and end > begin:
                punch_hole(fd, begin, end)
                self._freed[log] = end
        finally:
            os.close(fd)


def _round_up(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
