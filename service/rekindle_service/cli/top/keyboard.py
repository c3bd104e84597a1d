"""Keys of a terminal, read one by one."""

import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

_KEY = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])|.", re.DOTALL)
_NAMES = {
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    **{f"\x1b{prefix}{letter}": name for prefix in "[O" for letter, name in zip("AB", ("up", "down"), strict=True)},
}


def parse_keys(text: str) -> list[str]:
    """``up``, ``down``, ``enter``, ``escape``, ``backspace`` and printable characters; other keys are ignored."""
    keys = (_NAMES.get(key, key) for key in _KEY.findall(text))
    return [key for key in keys if key in _NAMES.values() or (len(key) == 1 and key.isprintable())]


class Keyboard:
    """The keys of standard input while this is entered; none where it is no terminal. Ctrl-C stays a signal."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno() if sys.stdin.isatty() else None

    def __enter__(self) -> Self:
        if self._fd is not None:
            self._saved = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
        return self

    def __exit__(self, *error: object) -> None:
        if self._fd is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._saved)

    def read(self, timeout: float) -> list[str]:
        """The keys that were pressed; empty after ``timeout`` seconds without one."""
        if self._fd is None:
            time.sleep(timeout)
            return []
        ready, _, _ = select.select([self._fd], [], [], timeout)
        data = os.read(self._fd, 1024) if ready else b""
        if ready and not data:
            self._fd = None  # the terminal is closed
        return parse_keys(data.decode(errors="replace"))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The terminal as it was before."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()
