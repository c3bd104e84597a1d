"""A node proves that it can write the run directory, and that others see what it writes there."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Never

from rekindle.contract.files import NO_SPACE_ERRNOS, read_json, write_json
from rekindle.contract.processes import die_with_parent, set_process_name

INTERVAL = 3.0  # seconds between two proofs of a node
_STUCK = 30.0  # seconds after which one that is being written counts as failed


class HomeProof:
    """Of this node. A child writes: where a network file system does not answer, a write waits for ever."""

    def __init__(self, path: Path, close: Callable[[], None]) -> None:
        """Write the first proof. ``close`` closes in the child what only the keeper may keep open.

        Raises OSError where nothing can be written; a full disk is no such reason.
        """
        self._path, self._close = path, close
        self.written, self._error = 1, _write(path, 1) or ""
        if self._error:
            raise OSError(self._error)
        self._fork()

    def _fork(self) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._heard_at, keeper = time.monotonic(), os.getpid()
        if not (pid := os.fork()):
            self._close()
            _write_for_ever(self._path, self.written, writer, keeper)
        self.pid = pid
        os.close(writer)

    def trouble(self) -> str | None:
        """Why this node cannot write there now; updates ``written``, the number of the latest proof."""
        with suppress(BlockingIOError):
            read = os.read(self._reader, 1 << 16)
            if not read:  # killed, as all processes of an attempt are at its end
                os.close(self._reader)
                self._fork()
            for line in read.decode().splitlines():
                self._heard_at, (number, _, self._error) = time.monotonic(), line.partition(" ")
                self.written = int(number)
        silent = time.monotonic() - self._heard_at
        stuck = f"a write to {self._path.parent} has not ended for {silent:.0f} s" if silent > _STUCK else None
        return self._error or stuck


def _write_for_ever(path: Path, written: int, writer: int, keeper: int) -> Never:
    """Whatever else ends this child, SIGTERM does not, which Slurm sends to all processes so that ranks can save."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    die_with_parent(keeper)
    set_process_name("rekindle-proof")
    while True:
        time.sleep(INTERVAL)
        error = _write(path, written + 1)
        written += error is None
        os.write(writer, f"{written} {error or ''}\n".encode())


def _write(path: Path, number: int) -> str | None:
    """Why that fails, or empty where only more space is needed."""
    try:
        write_json(path, {"number": number}, durable=False)
    except OSError as error:
        return "" if error.errno in NO_SPACE_ERRNOS else f"it cannot write {path.parent}: {error.strerror}"
    return None


def read_proof(path: Path) -> int:
    """The number of the latest proof of another node that is seen here; 0 before the first. Raises OSError."""
    value = read_json(path, max_bytes=4096)
    number = value.get("number") if isinstance(value, dict) else None
    return number if isinstance(number, int) else 0
