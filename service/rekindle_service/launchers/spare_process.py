"""One spare keeper as the server sees it (``rekindle.keeper.spare``), and a keeper that it has forked."""

import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from rekindle.contract.environment import RUN_DIR, SPARE_ARGUMENT, SPARE_PADDING, clean_environment

KEEPER = ("-P", "-m", "rekindle.keeper")
"""``-P``: a ``json.py`` next to the user's script must not be what the keeper imports."""
_ANSWER_SECONDS = 1.0
_MAX_ANSWER = 4096  # bytes
_READ_AT_START_PREFIXES = (
    "PYTHON", "LD_", "GLIBC_", "MALLOC_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "ATEN_",
    "DNNL_", "ONEDNN_", "CUDA_", "CUDNN_", "CUBLAS_", "NVIDIA_", "NCCL_", "GLOO_", "UCX_", "TORCH", "PYTORCH_",
    "TRITON_", "NPY_", "NUMPY_", "LC_",
)  # fmt: skip
_READ_AT_START = {"LANG", "LANGUAGE", "HOME"}
_READ_LATER = {"CUDA_VISIBLE_DEVICES"}  # when CUDA is initialised, which no import does


class SpareError(Exception):
    """A spare keeper cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class SpareKey:
    """Jobs with the same one can be started by the same spare keeper."""

    python: str
    variables: tuple[tuple[str, str], ...]


def spare_key(python: str, environment: Mapping[str, str]) -> SpareKey:
    """For a keeper with this ``environment``: what the interpreter and torch read of it when they start."""
    read = (each for each in environment.items() if _is_read_at_start(each[0]))
    return SpareKey(python, tuple(sorted(read)))


def _is_read_at_start(name: str) -> bool:
    return (name in _READ_AT_START or name.startswith(_READ_AT_START_PREFIXES)) and name not in _READ_LATER


class KeeperProcess(Protocol):
    """A keeper that this server has started."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """None while it runs."""

    def terminate(self) -> None: ...


class ForkedKeeper:
    """A keeper that is no child of this process: its exit code is unknown."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid = pid
        self._pidfd = pidfd

    def poll(self) -> int | None:
        """None while it runs, else 0."""
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        if not ended.poll(0):
            return None
        with suppress(ChildProcessError):  # ours, where it was orphaned, and this server is the first of its container
            os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
        return 0

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)

    def __del__(self) -> None:
        os.close(self._pidfd)


class SpareProcess:
    """Starts when it is made; any thread may call it, but the one that makes it must outlive it.

    The kernel ends it with that thread. Raises OSError.
    """

    def __init__(self, key: SpareKey, inherited: Mapping[str, str], command: Sequence[str] = KEEPER) -> None:
        """``inherited``: the variables of this server that its jobs get; ``command``: after the interpreter."""
        self.key = key
        self._lock = threading.Lock()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables = {name: value for name, value in inherited.items() if not _is_read_at_start(name)}
        environment = {**clean_environment(variables), **dict(key.variables), "CUDA_VISIBLE_DEVICES": ""}
        with other:
            self._process = subprocess.Popen(
                [key.python, *command, f"{SPARE_ARGUMENT}{other.fileno()}{SPARE_PADDING}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={**environment, RUN_DIR: SPARE_PADDING},
                pass_fds=[other.fileno()],
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_ready(self, seconds: float) -> bool:
        """Whether it can fork keepers; waits for that at most ``seconds``. Raises SpareError where it never will."""
        answer, _ = self._receive(seconds)
        if answer and not answer.get("ready"):
            raise SpareError(str(answer.get("error", answer)))
        return bool(answer)

    def launch(self, request: Mapping[str, Any], log: int) -> ForkedKeeper:
        """Raises SpareError where it has forked none within a second; it must be closed then."""
        with self._lock:
            try:
                with os.fdopen(os.memfd_create("request", os.MFD_CLOEXEC), "w+b") as file:
                    file.write(json.dumps(request).encode())
                    file.seek(0)
                    socket.send_fds(self._socket, [b"launch"], [file.fileno(), log], socket.MSG_DONTWAIT)
                answer, fds = self._receive(_ANSWER_SECONDS)
            except OSError as error:
                raise SpareError(f"it cannot be asked: {error.strerror}") from error
        if len(fds) == 1 and isinstance(pid := answer.get("pid"), int):
            return ForkedKeeper(pid, fds[0])
        raise SpareError(str(answer.get("error", f"it has not answered within {_ANSWER_SECONDS:.0f} s")))

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End it without waiting for that; ``is_ready`` in another thread waits no longer."""
        self._process.kill()

    def close(self) -> None:
        """End it; the keepers that it has forked continue, and ``launch`` in another thread gets no answer."""
        self.kill()
        self._process.wait()
        with self._lock:
            self._socket.close()

    def _receive(self, seconds: float) -> tuple[dict[str, Any], list[int]]:
        """An empty answer where none comes, or none that it would send."""
        readable = select.poll()
        readable.register(self._socket, select.POLLIN)
        if not readable.poll(1000 * seconds):
            return {}, []
        message, fds, _, _ = socket.recv_fds(self._socket, _MAX_ANSWER, 1)
        with suppress(ValueError):
            if isinstance(answer := json.loads(message), dict):
                return answer, list(fds)
        return {"error": "it has ended"}, list(fds)
