"""A rank's output goes to its own files from its first line to its last, unbuffered as torchrun starts its ranks."""

import ctypes
import gc
import io
import os
import sys
from contextlib import suppress
from typing import Any

from rekindle.contract.files import NO_SPACE_ERRNOS
from rekindle.contract.run_dir.paths import RankDir


def capture_output(rank_dir: RankDir) -> None:
    """Point file descriptors 1 and 2, and ``sys.stdout`` and ``sys.stderr`` on them, at the rank's log files."""
    for fd, stream in ((1, "stdout"), (2, "stderr")):
        log = os.open(rank_dir.log(stream), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, fd)
        os.close(log)
    errors = "strict" if sys.__stdout__ is None else sys.__stdout__.errors  # another where no locale is set
    sys.stdout = sys.__stdout__ = _unbuffered(1, errors)  # type: ignore[misc]  # as the interpreter starts
    sys.stderr = sys.__stderr__ = _unbuffered(2, "backslashreplace")  # type: ignore[misc]  # as above


def flush_open_files() -> None:
    """Flush every file that is still open, the upper layers of each first, and then those of C libraries.

    An interpreter does so at its end, a forked process that exits does not.
    """
    objects = gc.get_objects()
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, io.IOBase)}
    for file in sorted((each for each in objects if type(each) in kinds), key=_layer):
        with suppress(Exception):  # it is closed, or cannot be written to: an interpreter reports nothing either
            file.flush()
    ctypes.CDLL(None).fflush(None)


class _Log(io.FileIO):
    """What does not fit on a full disk is dropped and counted: no training must end for a line of its log."""

    _dropped = 0  # bytes

    def write(self, data: Any, /) -> int:
        try:
            if self._dropped:
                super().write(f"[rekindle: the disk was full, {self._dropped} bytes are missing here]\n".encode())
                self._dropped = 0
            return super().write(data)
        except OSError as error:
            if error.errno not in NO_SPACE_ERRNOS:
                raise
            size = memoryview(data).nbytes
            self._dropped += size
            return size


def _unbuffered(fd: int, errors: str | None) -> io.TextIOWrapper:
    """Text on ``fd`` as ``python -u`` would open it."""
    raw = _Log(fd, "w", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, write_through=True)


def _layer(file: io.IOBase) -> int:
    """Text is on top of what turns it into other bytes (gzip), if anything does, and that on top of a buffer."""
    if isinstance(file, io.TextIOBase):
        return 0
    return 2 if isinstance(file, io.BufferedWriter | io.BufferedRandom) else 1
