"""The server as a process that tests start, stop and kill."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from e2e.waiting import until


class ServeProcess:
    """``rekindle serve`` in a process of its own, on the same port each time it is started."""

    def __init__(self, home: Path, cpu_slots: int = 4) -> None:
        self.home, self._cpu_slots = home, cpu_slots
        self.url = ""
        self._port = "0"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def start(self) -> None:
        command = [sys.executable, "-m", "rekindle_service", "serve", "--port", self._port]
        environment = {**os.environ, "REKINDLE_HOME": str(self.home), "REKINDLE_CPU_SLOTS": str(self._cpu_slots)}
        with (self.home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        announced = until(self._announced, "the server has written server.json")
        self.url = announced["url"].rstrip("/")
        self._port = self.url.rpartition(":")[2]

    def _announced(self) -> dict[str, str] | None:
        assert self._process is not None
        assert self._process.poll() is None, (self.home / "server.log").read_text()
        try:
            server = json.loads((self.home / "server.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return server if server["pid"] == self._process.pid else None

    def kill(self) -> None:
        """As a crash would: nothing is said to anybody."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(timeout=20)
