"""A rank's output goes to its own files from its first line on, unbuffered as torchrun starts its ranks."""

import errno
import faulthandler
import io
import os
import sys
from typing import Any

from rekindle.contract.run_dir.paths import RankDir
from rekindle.contract.run_dir.rank_records import STACK_SIGNAL


def capture_output(rank_dir: RankDir) -> None:
    """Point file descriptors 1 and 2, and ``sys.stdout`` and ``sys.stderr`` on them, at the rank's log files."""
    for fd, stream in ((1, "stdout"), (2, "stderr")):
        log = os.open(rank_dir.log(stream), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, fd)
        os.close(log)
    errors = "strict" if sys.__stdout__ is None else sys.__stdout__.errors  # another where no locale is set
    sys.stdout = sys.__stdout__ = _unbuffered(1, errors)  # type: ignore[misc]  # as the interpreter starts
    sys.stderr = sys.__stderr__ = _unbuffered(2, "backslashreplace")  # type: ignore[misc]  # as above


def leave_stacks_on_request(rank_dir: RankDir) -> None:
    """Append the stacks of all threads to the rank's file at every ``STACK_SIGNAL``, and to stderr at a crash."""
    faulthandler.enable()
    stacks = os.open(rank_dir.stacks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    faulthandler.register(STACK_SIGNAL, file=stacks, all_threads=True)


class _Log(io.FileIO):
    """What does not fit on a full disk is left out and counted: no training must end for a line of its log."""

    _left_out = 0  # bytes

    def write(self, data: Any, /) -> int:
        try:
            if self._left_out:
                super().write(f"[rekindle: the disk was full, {self._left_out} bytes are missing here]\n".encode())
                self._left_out = 0
            return super().write(data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            size = memoryview(data).nbytes
            self._left_out += size
            return size


def _unbuffered(fd: int, errors: str | None) -> io.TextIOWrapper:
    """Text on ``fd`` as ``python -u`` would open it."""
    raw = _Log(fd, "w", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, write_through=True)
