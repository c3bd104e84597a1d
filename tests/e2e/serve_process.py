"""The server as a process that tests start, stop and kill."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from e2e.waiting import until
from migrated import provide_database


class ServeProcess:
    """``rekindle serve`` in a process of its own, on the same port each time it is started."""

    def __init__(
        self, home: Path, cpu_slots: int = 4, under: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        """``under``: words before the command, which must become it by exec; ``environment``: further variables."""
        self.home, self._cpu_slots, self._under = home, cpu_slots, under
        self._environment = environment or {}
        self.url = ""
        self._port = "0"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.stop()

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, boot_id: Path | None = None) -> None:
        """``boot_id``: a file that the server and all it starts see in the place of the kernel's (needs root)."""
        command = [
            *self._under,
            *_under(boot_id),
            sys.executable,
            "-m",
            "rekindle_service",
            "serve",
            "--port",
            self._port,
        ]
        environment = {**os.environ, "REKINDLE_HOME": str(self.home), "REKINDLE_CPU_SLOTS": str(self._cpu_slots)}
        environment |= self._environment
        provide_database(self.home / "rekindle.db")
        with (self.home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            announced = until(self._announced, "the server has written server.json")
        except BaseException:
            self.kill()
            raise
        self.url = announced["url"].rstrip("/")
        self._port = self.url.rpartition(":")[2]

    def _announced(self) -> dict[str, str] | None:
        assert self._process is not None
        assert self._process.poll() is None, (self.home / "server.log").read_text()
        try:
            server = json.loads((self.home / "server.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return server if server["pid"] == self._pid_of_its_own() else None

    def _pid_of_its_own(self) -> int:
        """The pid that the server itself sees."""
        return self.pid

    def kill(self) -> None:
        """End the server as a crash would: it cannot announce its end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(timeout=20)


def _under(boot_id: Path | None) -> list[str]:
    """What a command is started with to live in a mount namespace with another boot id."""
    if boot_id is None:
        return []
    mount = f'mount --bind {shlex.quote(str(boot_id))} /proc/sys/kernel/random/boot_id && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", mount, "sh"]
