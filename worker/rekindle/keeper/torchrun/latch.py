"""Where a warm agent waits until an attempt needs it.

On one machine its rendezvous is done already. On a cluster it waits before that: only the attempt knows its nodes.
"""

import json
import os

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest, LogsSpecs


def wait_for_attempt(fd: int) -> str:
    """Wait until the attempt begins, which comes through the pipe ``fd``; returns torchrun's own directory.

    From then on this process has the attempt's environment, and writes to the file of the agent's output. Where the
    keeper needs no agent any more, or has ended, this process ends.
    """
    with os.fdopen(fd, "rb") as pipe:
        line = pipe.readline()
    if not line.endswith(b"\n"):
        os._exit(0)
    environment, agent_log, log_dir = json.loads(line)
    os.environ.update(environment)
    log = os.open(agent_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    return str(log_dir)


class LatchedLogs(LogsSpecs):
    """Stands in for torchrun's ``LogsSpecs``, which it asks right before it starts the ranks."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._log_dir: str | None = None

    def wait(self) -> str:
        """Wait until the attempt begins, at the first call; returns torchrun's own directory."""
        if self._log_dir is None:
            self._log_dir = wait_for_attempt(self._fd)
        return self._log_dir

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Wait until the attempt begins; the ranks forked afterwards inherit its environment."""
        return DefaultLogsSpecs(log_dir=self.wait()).reify(envs)

    @property
    def root_log_dir(self) -> str:
        return os.devnull
