"""Where a warm agent waits, its rendezvous behind it, until an attempt needs it."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest, LogsSpecs


@dataclass(frozen=True, slots=True)
class Release:
    """What an agent learns when its attempt begins."""

    environment: dict[str, str]
    log: str  # file of the agent's own output
    log_dir: str  # torchrun's own folder

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def read(cls, fd: int) -> Self:
        """Block until a release comes through the pipe ``fd``, and close it."""
        with os.fdopen(fd, "rb") as pipe:
            return cls(**json.loads(pipe.readline()))


class GatedLogs(LogsSpecs):
    """Stands in for torchrun's ``LogsSpecs``, which it asks right before it starts the ranks."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Wait for the release; the ranks forked afterwards inherit its environment."""
        release = Release.read(self._fd)
        os.environ.update(release.environment)
        redirect_output(Path(release.log))
        return DefaultLogsSpecs(log_dir=release.log_dir).reify(envs)

    @property
    def root_log_dir(self) -> str:
        return os.devnull


def redirect_output(log: Path) -> None:
    """Point file descriptors 1 and 2 at the end of ``log``."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
