"""The keeper's end of the bell: a FIFO on which ranks, the agent and the server say that something happened."""

import json
import os
import stat
from pathlib import Path
from typing import Any


class Bell:
    """Listens from construction to ``close``. Nothing rung while a keeper listens is lost."""

    def __init__(self, path: Path) -> None:
        if path.exists() and not stat.S_ISFIFO(path.lstat().st_mode):
            path.unlink()
        if not path.exists():
            os.mkfifo(path, 0o600)
        # Read and write: a FIFO with no writer left would otherwise report end of file for ever.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._pending = b""
        while self._read():  # what was rung for an earlier keeper
            pass
        self._pending = b""

    def fileno(self) -> int:
        return self._fd

    def messages(self) -> list[dict[str, Any]]:
        """All messages rung since the last call; never blocks. Lines that are not JSON objects are passed over."""
        while self._read():
            pass
        *lines, self._pending = self._pending.split(b"\n")
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
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
