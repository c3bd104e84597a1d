"""Where a warm agent waits, its rendezvous already done, until an attempt needs it."""

import json
import os
from dataclasses import asdict, dataclass
from typing import Self

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest, LogsSpecs


@dataclass(frozen=True, slots=True)
class Go:
    """What an agent receives when its attempt begins."""

    environment: dict[str, str]
    log: str  # file of the agent's own output
    log_dir: str  # torchrun's own directory

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def read(cls, fd: int) -> Self:
        """Block until it comes through the pipe ``fd``, and close that."""
        with os.fdopen(fd, "rb") as pipe:
            return cls(**json.loads(pipe.readline()))


class LatchedLogs(LogsSpecs):
    """Stands in for torchrun's ``LogsSpecs``, which it asks right before it starts the ranks."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Wait for ``Go``; the ranks forked afterwards inherit its environment."""
        go = Go.read(self._fd)
        os.environ.update(go.environment)
        log = os.open(go.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        return DefaultLogsSpecs(log_dir=go.log_dir).reify(envs)

    @property
    def root_log_dir(self) -> str:
        return os.devnull
