"""Spare keepers (``rekindle.keeper.spare``), from which jobs start without importing torch.

A job for which there is none starts as it would without, and so does one whose spare keeper fails in whatever way.
"""

import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil
import structlog

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
    """What interpreter and torch read of a keeper's ``environment`` when they start."""
    read = (each for each in environment.items() if _is_read_at_start(each[0]))
    return SpareKey(python, tuple(sorted(read)))


def _is_read_at_start(name: str) -> bool:
    return (name in _READ_AT_START or name.startswith(_READ_AT_START_PREFIXES)) and name not in _READ_LATER


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


_log = structlog.get_logger(__name__)

_QUIET_SECONDS = 3.0  # after a launch, in which its ranks start
_CHECK_INTERVAL = 10.0  # seconds between two checks of the machine's free memory
_IMPORT_SECONDS = 300.0  # that the imports may take at low priority
_RETRY_SECONDS = 60.0  # after which one that could not be made is tried again
_POLL_SECONDS = 0.5  # between two checks whether it is still needed
_MAX_KEYS = 100  # that are remembered


class SpareKeepers:
    """Any thread may call it; one thread of its own makes and ends them."""

    def __init__(
        self,
        limit: int,
        min_free_memory: int,
        inherited: Mapping[str, str],
        make: Callable[[SpareKey, Mapping[str, str]], SpareProcess] = SpareProcess,
    ) -> None:
        """``limit``: of processes; ``min_free_memory``: of the machine, in bytes, below which there are none.

        ``inherited``: the variables of this server that its jobs get.
        """
        self._limit, self._min_free_memory, self._inherited, self._new = limit, min_free_memory, inherited, make
        self._changed = threading.Condition()
        self._requested: OrderedDict[SpareKey, float] = OrderedDict()  # by use, the latest last; time of the next try
        self._ready: dict[SpareKey, SpareProcess] = {}
        self._importing: SpareProcess | None = None
        self._quiet_at = 0.0  # time.monotonic() from which one may be made
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="spare-keepers", daemon=True)

    def start(self, *keys: SpareKey) -> None:
        """Have one ready for each of ``keys``, as far as the limit allows, and for what is launched from now on."""
        if self._limit > 0:
            self._requested.update(dict.fromkeys(reversed(keys), 0.0))
            self._thread.start()

    def launch(self, key: SpareKey, request: Mapping[str, Any], log: int) -> ForkedKeeper | None:
        """Fork a keeper with ``request`` of ``rekindle.keeper.spare``; None where it must be started by itself."""
        with self._changed:
            self._use(key)
            spare = self._ready.get(key)
        if spare is None:
            return None
        try:
            return spare.launch(request, log)
        except SpareError as error:
            _log.info("A spare keeper is replaced", python=key.python, reason=str(error))
        with self._changed:
            if self._ready.get(key) is spare:
                del self._ready[key]
            self._changed.notify_all()
        spare.close()
        return None

    def close(self) -> None:
        """End all of them; their keepers continue."""
        with self._changed:
            self._stopping = True
            if self._importing is not None:
                self._importing.kill()  # ends the wait for its imports
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def _use(self, key: SpareKey) -> None:
        self._requested[key] = self._requested.pop(key, 0.0)
        while len(self._requested) > _MAX_KEYS:
            self._requested.popitem(last=False)
        self._quiet_at = time.monotonic() + _QUIET_SECONDS
        self._changed.notify_all()

    def _run(self) -> None:
        while not self._stopping:
            self._close_unneeded()
            if (key := self._next_to_make()) is not None:
                self._make(key)
                continue
            with self._changed:
                if not self._stopping:
                    self._changed.wait(self._seconds_to_wait())
        with self._changed:
            spares, self._ready = list(self._ready.values()), {}
        for spare in spares:
            spare.close()

    def _seconds_to_wait(self) -> float:
        quiet_in = self._quiet_at - time.monotonic()
        return quiet_in if quiet_in > 0 else _CHECK_INTERVAL

    def _close_unneeded(self) -> None:
        """Close spare keepers that have ended or were not used for long, and all of them where memory is short."""
        kept = self._kept_keys()
        with self._changed:
            closed = [key for key, spare in self._ready.items() if key not in kept or not spare.is_alive()]
            spares = [self._ready.pop(key) for key in closed]
        for spare in spares:
            spare.close()

    def _kept_keys(self) -> list[SpareKey]:
        with self._changed:
            used = list(reversed(self._requested))
        return keys_to_keep(used, self._limit, psutil.virtual_memory().available, self._min_free_memory)

    def _next_to_make(self) -> SpareKey | None:
        kept, now = self._kept_keys(), time.monotonic()
        with self._changed:
            if self._stopping or now < self._quiet_at:
                return None
            missing = (key for key in kept if key not in self._ready and self._requested.get(key, now) <= now)
            return next(missing, None)

    def _make(self, key: SpareKey) -> None:
        try:
            spare = self._new(key, self._inherited)
        except OSError as error:
            self._postpone(key, str(error))
            return
        with self._changed:
            self._importing = spare
        try:
            is_ready = self._await_ready(spare)
        except (SpareError, OSError) as error:
            self._postpone(key, str(error))
            is_ready = False
        with self._changed:
            self._importing = None
            if is_ready and key in self._requested:
                self._ready[key] = spare
                return
        spare.close()

    def _await_ready(self, spare: SpareProcess) -> bool:
        """False where it is not needed any more. Raises SpareError."""
        deadline = time.monotonic() + _IMPORT_SECONDS
        while not self._stopping:
            if spare.is_ready(_POLL_SECONDS):
                return True
            if time.monotonic() > deadline:
                raise SpareError(f"its imports have taken more than {_IMPORT_SECONDS:.0f} s")
        return False

    def _postpone(self, key: SpareKey, reason: str) -> None:
        if self._stopping:
            return
        _log.info("No spare keeper could be started", python=key.python, reason=reason)
        with self._changed:
            self._requested[key] = time.monotonic() + _RETRY_SECONDS


def keys_to_keep(used: Sequence[SpareKey], limit: int, free_memory: int, min_free_memory: int) -> list[SpareKey]:
    """Keys that get a spare keeper each: the latest of ``used``, which come first. Memory is in bytes."""
    return [] if free_memory < min_free_memory else list(used[:limit])
