"""A spare keeper: has imported torch, and forks the keeper of a job when the server asks for one.

It never runs code of a job, and changes nothing in between, so that each keeper starts from the same state. It ends
with the server that started it; the keepers that it has forked do not. Both always have the same version.

A socket connects it to the server. A request is the word ``launch`` with two descriptors: a file with ``run_dir``,
``cwd`` and the whole ``environment`` as JSON, and the keeper's log. The answers are JSON: ``ready`` once, then for each
request ``pid``, with the descriptor of the process. After ``error`` the spare keeper has ended.
"""

import ctypes
import gc
import json
import os
import select
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from rekindle.contract.environment import RUN_DIR, SPARE_ARGUMENT
from rekindle.contract.processes import die_with_parent, open_descriptors, set_process_name, stat_fields
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.keeper_environment import list_packages
from rekindle.keeper.torchrun.preload import preload_torch

PROCESS_NAME = "rekindle-spare"
"""Name of the process from when it can fork keepers."""
_LOW_PRIORITY = 19
_THREAD_END = 5.0  # seconds that a thread may take to end
_LAUNCH = b"launch"
_COERCED = ["LC_CTYPE"]
"""Python sets it for its children where no locale is set (PEP 538); the locale is the same for all jobs of a spare."""
_ARGUMENTS, _ENVIRONMENT = 45, 47  # fields of /proc/PID/stat from the third on: where each begins; its end follows

Main = Callable[[RunDir], int]
Stamp = dict[str, tuple[int, int, int]]
"""Time of change in nanoseconds, size and inode of each file."""


class _UnusableError(Exception):
    """No keeper can be forked from this process; the message gives the reason."""


def is_spare(argument: str) -> bool:
    """Whether the first argument of the command line asks for a spare keeper, not for a keeper."""
    return argument.startswith(SPARE_ARGUMENT)


def serve(argument: str, main: Main) -> NoReturn:
    """Import torch, then fork a keeper, which calls ``main``, for each request of the server."""
    die_with_parent(os.getppid())
    server = socket.socket(fileno=int(argument.removeprefix(SPARE_ARGUMENT)))
    try:
        _import_at_low_priority()
        _Spare(server, main).serve()
    except (OSError, ValueError, _UnusableError) as error:
        _answer(server, {"error": str(error)})
    os._exit(0)


def _import_at_low_priority() -> None:
    """Import in a thread: a lowered priority cannot be raised again, and keepers inherit that of this thread."""
    failed = ["the imports have been broken off"]

    def import_torch() -> None:
        with suppress(OSError):  # not every system lets a thread have a priority of its own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW_PRIORITY)
        list_packages()
        failed[:] = preload_torch()

    thread = threading.Thread(target=import_torch)
    thread.start()
    thread.join()
    if failed:
        raise _UnusableError(f"not imported: {failed[0]}")
    _end_threads_that_no_fork_has()
    deadline = time.monotonic() + _THREAD_END
    while (threads := len(list(Path("/proc/self/task").iterdir()))) > 1:
        if time.monotonic() > deadline:
            raise _UnusableError(f"the imports have left {threads - 1} threads, which a fork would lack")
        time.sleep(0.001)


def _end_threads_that_no_fork_has() -> None:
    """Fork once: OpenBLAS (``pthread_atfork``) ends its threads before each fork and starts others when needed."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


class _Spare:
    """Forks keepers, and collects those that have ended."""

    def __init__(self, server: socket.socket, main: Main) -> None:
        self._server, self._main = server, main
        self._keepers: dict[int, int] = {}  # pid by descriptor
        self._lasting = open_descriptors() - {server.fileno()}
        self._stamp = take_stamp(imported_files())

    def serve(self) -> None:
        """Serve requests until the server closes the socket, or a file has changed."""
        gc.collect()
        gc.freeze()  # what the collector never visits is not copied after a fork
        set_process_name(PROCESS_NAME)
        _answer(self._server, {"ready": True})
        poll = select.poll()
        poll.register(self._server, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd in self._keepers:
                    poll.unregister(fd)
                    os.waitpid(self._keepers.pop(fd), 0)
                    os.close(fd)
                elif (keeper := self._handle_request()) is not None:
                    poll.register(keeper, select.POLLIN)
                else:
                    return

    def _handle_request(self) -> int | None:
        """The descriptor of the new keeper's process; None where the server has closed the socket."""
        message, (*fds,), _, _ = socket.recv_fds(self._server, len(_LAUNCH), 2)
        if message != _LAUNCH or len(fds) != 2:
            return None
        if (path := changed_file(self._stamp)) is not None:
            raise _UnusableError(f"{path} has changed since it was imported")
        request_fd, log = fds
        pid = os.fork()
        if pid == 0:
            self._become_keeper(request_fd, log)
        os.close(request_fd)
        os.close(log)
        pidfd = os.pidfd_open(pid)
        self._keepers[pidfd] = pid
        _answer(self._server, {"pid": pid}, pidfd)
        return pidfd

    def _become_keeper(self, request_fd: int, log: int) -> NoReturn:
        """Become the keeper in the forked process, as if it had been started by itself."""
        code = 1
        try:
            os.setsid()
            self._server.detach()  # closed with the others
            os.dup2(log, 1)
            os.dup2(log, 2)
            with os.fdopen(request_fd, "rb") as file:
                request: dict[str, Any] = json.loads(file.read())
            become(request["environment"], request["run_dir"], request["cwd"], self._lasting)
            code = self._main(RunDir(Path(request["run_dir"])))
        except BaseException:  # noqa: BLE001  # nothing may return into the spare keeper's own code
            traceback.print_exc()
        finally:
            with suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def become(environment: Mapping[str, str], run_dir: str, cwd: str, lasting: set[int]) -> None:
    """Take over all that the keeper of ``run_dir`` has of its own; of the descriptors, ``lasting`` stay open.

    What libraries have read at their import stays: the jobs of a spare keeper agree in it. Raises OSError.
    """
    for fd in open_descriptors() - lasting - {0, 1, 2}:
        os.close(fd)
    coerced = {name: os.environ[name] for name in _COERCED if name in os.environ}
    os.environ.clear()
    os.environ.update({**coerced, **environment})
    time.tzset()
    tempfile.tempdir = None
    os.chdir(cwd)
    sys.argv[1:] = [run_dir]
    _show_in_proc(run_dir)


def _show_in_proc(run_dir: str) -> None:
    """Let ``/proc`` show the run directory as it does for any keeper: a later one finds by it what this one leaves.

    The kernel shows the memory in which it has put arguments and variables at the start of the interpreter.
    """
    path = os.fsencode(run_dir)
    _overwrite(_ARGUMENTS, SPARE_ARGUMENT.encode(), path)
    _overwrite(_ENVIRONMENT, RUN_DIR.encode() + b"=", RUN_DIR.encode() + b"=" + path)


def _overwrite(field: int, prefix: bytes, text: bytes) -> None:
    fields = stat_fields(os.getpid()) or []
    start, end = int(fields[field]), int(fields[field + 1])
    shown = b"\0" + ctypes.string_at(start, end - start)
    begin = shown.find(b"\0" + prefix)
    length = shown.find(b"\0", begin + 1) - begin - 1
    if begin < 0 or length < len(text):
        raise OSError(f"{text!r} has no room in the memory that /proc shows: it takes {len(text)} bytes of {length}")
    ctypes.memmove(start + begin, text.ljust(length, b"\0"), length)


def _answer(server: socket.socket, answer: dict[str, Any], *fds: int) -> None:
    with suppress(OSError):  # the server has ended: so does this process, which reads the end of the socket next
        socket.send_fds(server, [json.dumps(answer).encode()], fds)


def imported_files() -> list[str]:
    """Files that an upgrade may change: the interpreter, its search path, rekindle and all packages."""
    files = {sys.executable, str(Path(sys.prefix) / "pyvenv.cfg"), *sys.path}
    for name, module in list(sys.modules.items()):
        package = name.partition(".")[0]
        path = getattr(module, "__file__", None)
        if path is not None and (name in (package, "torch.version") or package == "rekindle"):
            files.add(path)
    return sorted(files - {""})


def take_stamp(files: list[str]) -> Stamp:
    """Stamp the files that exist."""
    return {path: found for path in files if (found := _stat(path)) is not None}


def changed_file(stamp: Stamp) -> str | None:
    """The first file that is not as it was, or that has gone."""
    return next((path for path, was in stamp.items() if _stat(path) != was), None)


def _stat(path: str) -> tuple[int, int, int] | None:
    with suppress(OSError):
        found = Path(path).stat()
        return found.st_mtime_ns, found.st_size, found.st_ino
    return None
