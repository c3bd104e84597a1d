"""The keeper's end of the bell: a FIFO on which ranks, the agent and the server say that something happened."""

import json
import os
import stat
from pathlib import Path
from typing import Any

from rekindle.contract.run_dir.rank_records import MAX_MESSAGE_BYTES

_AT_ONCE = 1 << 20  # bytes taken in by one call: a script that rings without end must not keep the keeper from its work


class ControlFifo:
    """Listens from construction to ``close``.

    What is rung while a keeper listens is heard, unless a flood fills the FIFO: then the ranks' files tell the rest.
    """

    def __init__(self, path: Path) -> None:
        if os.path.lexists(path) and not stat.S_ISFIFO(path.lstat().st_mode):
            path.unlink()
        if not os.path.lexists(path):
            os.mkfifo(path, 0o600)
        # Read and write: a FIFO with no writer left would otherwise report end of file for ever.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._pending = b""
        self.messages()  # what was rung for an earlier keeper
        self._pending = b""

    def fileno(self) -> int:
        return self._fd

    def messages(self) -> list[dict[str, Any]]:
        """The messages rung since the last call; never blocks. Lines that are not JSON objects are passed over."""
        while len(self._pending) < _AT_ONCE and self._read():
            pass
        *lines, self._pending = self._pending.split(b"\n")
        if len(self._pending) > MAX_MESSAGE_BYTES:
            self._pending = b""
        return [message for line in lines if (message := _parse(line)) is not None]

    def close(self) -> None:
        os.close(self._fd)

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return False
        self._pending += data
        return bool(data)


def _parse(line: bytes) -> dict[str, Any] | None:
    if len(line) > MAX_MESSAGE_BYTES:
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
