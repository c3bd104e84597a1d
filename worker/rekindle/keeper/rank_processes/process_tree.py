"""Finding and killing every process of a run, whatever it did to escape."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rekindle.contract.environment import HOST, RUN_DIR
from rekindle.contract.processes import ProcessIdentity, descendants

CLEANUP_GRACE = 5.0  # seconds for processes that clean up after others; a loaded machine starts them late
CLEANUP_HELPERS = (b"multiprocessing.resource_tracker", b"torch_shm_manager")


def orphans_of(run_dir: Path, host: str | None = None) -> list[int]:
    """Processes of this run that an earlier keeper left, found by their environment; our own tree is excluded.

    ``host``: only those that a keeper of this node of a cluster has started.
    """
    keys = {f"{RUN_DIR}={run_dir}".encode(), *([] if host is None else [f"{HOST}={host}".encode()])}
    own = {os.getpid(), *descendants(os.getpid())}
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [pid for pid in pids if pid not in own and keys <= set(_read(pid, "environ").split(b"\0"))]


def kill_all(find: Callable[[], list[int]], reap: Callable[[], object], timeout: float = 10.0) -> list[int]:
    """SIGKILL all that ``find`` finds until it finds no more; returns the pids still alive after ``timeout`` seconds.

    A process may fork before its end, and one whose parent ends during the walk is found below neither: so nothing is
    left only when two walks in a row have found nothing. Helpers that free what the others held in shared memory get
    ``CLEANUP_GRACE`` seconds. ``reap`` collects this process's own children. A process in uninterruptible sleep (a
    wedged device or network file system) cannot be killed by anybody, one of another user (``sudo``) not by us.
    """
    started = time.monotonic()
    empty_walks = 0
    while empty_walks < 2:
        alive = _alive(find())
        empty_walks = 0 if alive else empty_walks + 1
        elapsed = time.monotonic() - started
        if alive and elapsed >= timeout:
            break
        for identity in alive:
            if elapsed >= CLEANUP_GRACE or not _is_cleanup_helper(identity.pid):
                identity.send_signal(signal.SIGKILL)
        reap()
        time.sleep(0.002 if alive else 0)
    return [identity.pid for identity in alive]


def reap_children() -> dict[int, int]:
    """Collect every child that has ended (adopted orphans too): pid → wait status."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended[child[0]] = child[1]
    return ended


def _alive(pids: list[int]) -> list[ProcessIdentity]:
    known = (ProcessIdentity.of(pid) for pid in pids)
    return [identity for identity in known if identity is not None and identity.alive()]


def _is_cleanup_helper(pid: int) -> bool:
    """True for a helper, and for what has no command line yet: it is just being started."""
    command = _read(pid, "cmdline")
    return not command or any(name in command for name in CLEANUP_HELPERS)


def _read(pid: int, name: str) -> bytes:
    """The file ``name`` of /proc/PID; nothing where the process has ended or is another user's."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""
