"""pdb in a rank, over a Unix socket: a terminal attaches and leaves as it likes, and the rank waits for it."""

import builtins
import io
import os
import pdb
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from rekindle.contract.run_dir.rank_records import DEBUGGER_PHASE

_REPEATED = 4096  # characters printed last, for a terminal that attaches
_OWN = "rekindle.training."
_NOT_STEPPED_INTO = (f"{_OWN}*", "bdb")

PhaseOf = Callable[[str], AbstractContextManager[None]]


def open_debugger(path: Path, code: Path, phase: PhaseOf, names: Mapping[str, object]) -> None:
    """Stop the script at its next line. ``path``: of the socket; ``names``: seen in it where it has no such names.

    The caller and its callers in this package must return to the script and call nothing else.
    """
    vars(builtins).update(names)
    frames = [frame for frame, _ in traceback.walk_stack(sys._getframe())]
    callers = [frame for frame in frames if not str(frame.f_globals.get("__name__")).startswith(_OWN)]
    own = [frame for frame in callers if Path(frame.f_code.co_filename).is_relative_to(code)]
    debugger = _Debugger(path, phase)
    debugger.set_trace((own or callers)[0])  # a recipe has no code of the user
    debugger.set_step()  # Python 3.13 would stop within the line that waits for the batch


class _Debugger(pdb.Pdb):
    """While it waits for a command, the phase of the rank is ``DEBUGGER_PHASE``."""

    def __init__(self, path: Path, phase: PhaseOf) -> None:
        self._terminal, self._phase = _Terminal(path), phase
        files = {"stdin": self._terminal, "stdout": self._terminal}
        super().__init__(**files, skip=_NOT_STEPPED_INTO, nosigint=True, readrc=False)  # type: ignore[arg-type]

    def interaction(self, *stop: Any) -> None:
        with self._phase(DEBUGGER_PHASE):
            super().interaction(*stop)

    def set_continue(self) -> None:
        super().set_continue()
        if not self.breaks:
            self._terminal.close()

    def set_quit(self) -> None:
        super().set_quit()
        self._terminal.close()


class _Terminal(io.TextIOBase):
    """Input and output of the debugger: the terminal that is attached, or the next that attaches."""

    def __init__(self, path: Path) -> None:
        self._path, self._printed, self._input = path, "", b""
        self._connection: socket.socket | None = None
        self._listener = socket.socket(socket.AF_UNIX)
        directory, before = os.open(path.parent, os.O_PATH | os.O_DIRECTORY), os.umask(0o177)
        try:
            path.unlink(missing_ok=True)
            # Through /proc: a socket's own path may have 107 bytes at most, a run directory's may be longer.
            self._listener.bind(f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.umask(before)
            os.close(directory)
        self._listener.listen()

    def readline(self, _size: int | None = -1) -> str:  # type: ignore[override]  # of text, as pdb calls it
        """The next line of whoever attaches: it waits, and the end of one input is not the end."""
        while b"\n" not in self._input:
            if self._connection is None:
                self._connection, _ = self._listener.accept()
                self._send(self._printed)
                continue
            data = b""
            with suppress(OSError):
                data = self._connection.recv(1 << 16)
            self._input += data
            if not data:
                self._input += b"\n" if self._input else b""
                self._detach()
        line, _, self._input = self._input.partition(b"\n")
        return f"{line.decode(errors='replace')}\n"

    def write(self, text: str) -> int:
        self._printed = (self._printed + text)[-_REPEATED:]
        self._send(text)
        return len(text)

    def close(self) -> None:
        """Leave the terminal for good: no more can attach."""
        if not self.closed:
            self._path.unlink(missing_ok=True)
            self._detach()
            self._listener.close()
        super().close()

    def _send(self, text: str) -> None:
        if self._connection is not None:
            try:
                self._connection.sendall(text.encode(errors="replace"))
            except OSError:
                self._detach()

    def _detach(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)  # processes that the script has forked have it, too
            self._connection.close()
            self._connection = None
