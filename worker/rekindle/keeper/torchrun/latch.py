"""Where a warm agent waits until an attempt needs it.

On one machine its rendezvous is done already. On a cluster it waits before that: only the attempt knows its nodes.
"""

import fcntl
import json
import os
import signal
from contextlib import suppress

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest, LogsSpecs

from rekindle.contract.environment import STANDBY

_MAX_LINE = 1 << 16  # bytes: what a pipe holds


def wait_for_attempt(fd: int) -> str:
    """Wait until the attempt begins, which comes through the pipe ``fd``; returns torchrun's own directory.

    From then on this process has the attempt's environment, and writes to the file of the agent's output. Where the
    keeper needs no agent any more, or has ended, this process ends.
    """
    with os.fdopen(fd, "rb") as pipe:
        line = pipe.readline()
    if not line.endswith(b"\n"):
        os._exit(0)
    return begin_attempt(line)[1]


def begin_attempt(line: bytes) -> tuple[dict[str, str], str]:
    """Take the attempt's environment, and write to the file of the agent's output; return it and its directory."""
    environment, agent_log, log_dir = json.loads(line)
    os.environ.update(environment)
    log = os.open(agent_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    return environment, str(log_dir)


def pass_on(latch: int, ranks: int) -> None:
    """Let ``ranks`` that are forked afterwards wait by themselves, and pass on to them when the attempt begins.

    By a signal: torchrun watches them meanwhile, and a thread would have to be started before they are forked.
    """
    pipes = [os.pipe() for _ in range(ranks)]
    os.environ[STANDBY] = ",".join(str(reader) for reader, _ in pipes)

    def release(_number: int, _frame: object) -> None:
        with suppress(BlockingIOError):  # the signal of another pipe
            line = os.read(latch, _MAX_LINE)
            if not line.endswith(b"\n"):
                os._exit(0)
            signal.signal(signal.SIGIO, signal.SIG_IGN)  # that the pipe is closed means nothing any more
            environment, _ = begin_attempt(line)
            for _, writer in pipes:
                os.write(writer, json.dumps(environment).encode() + b"\n")

    signal.signal(signal.SIGIO, release)
    fcntl.fcntl(latch, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(latch, fcntl.F_SETFL, fcntl.fcntl(latch, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)


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


class StandbyLogs(LogsSpecs):
    """Stands in for them in an agent of a standby world: the ranks start at once, and wait by themselves."""

    def __init__(self, fd: int, directory: str) -> None:
        super().__init__()
        self._fd, self._directory = fd, directory

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        pass_on(self._fd, len(envs))
        return DefaultLogsSpecs(log_dir=self._directory).reify(envs)

    @property
    def root_log_dir(self) -> str:
        return self._directory
