"""A terminal in which a test runs commands, types, and reads what a person would see."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli_process import environment, heed_interrupts
from e2e.waiting import until


class Terminal:
    """A terminal with a command in it; ``seen`` is everything that was written to it."""

    def __init__(self, home: Path, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(100, 30)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rekindle_service", *words],
            env=environment(home, TERM="xterm-256color", COLUMNS="", LINES=""),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=heed_interrupts,
        )
        os.close(theirs)
        self.seen = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def await_text(self, text: bytes) -> None:
        """Wait until ``text`` is written again."""
        begin = len(self.seen)
        until(lambda: text in self.seen[begin:], f"{text!r} is on the terminal")

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=30)

    def _read(self) -> None:
        """Read until the other end is closed, which Linux reports as EIO."""
        try:
            while data := os.read(self._ours, 4096):
                self.seen += data
        except OSError:
            return

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(timeout=10)
        os.close(self._ours)


@contextmanager
def terminal(home: Path, *words: str) -> Iterator[Terminal]:
    window = Terminal(home, *words)
    try:
        yield window
    finally:
        window.close()
