"""Finding and ending every process of a run, whatever it did to get away."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rekindle.contract.environment import RUN_DIR
from rekindle.contract.processes import ProcessIdentity

TIDYING = 2.0  # seconds for processes that clean up after others that have died
_TIDIERS = (b"multiprocessing.resource_tracker", b"torch_shm_manager")


def descendants(pid: int) -> list[int]:
    """Every process below ``pid``, nearest first. The keeper adopts orphans, so none of a run's can leave its tree."""
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in _children(parent)]
        found += level
    return found


def leftovers(run_dir: Path) -> list[int]:
    """Processes of this run that an earlier keeper left, found by their environment: ours and our own tree excepted."""
    key = f"{RUN_DIR}={run_dir}".encode()
    own = {os.getpid(), *descendants(os.getpid())}
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [pid for pid in pids if pid not in own and key in _environment(pid)]


def end_all(find: Callable[[], list[int]], reap_children: Callable[[], object], patience: float = 10.0) -> list[int]:
    """SIGKILL all that ``find`` finds until it finds no more; returns the pids still there after ``patience`` seconds.

    Looking once is not enough: a process may fork between the look and its end, and one whose parent ends while the
    tree is walked is seen below neither. So nothing is left only when two looks in a row have found nothing.
    Those that free what the others held in shared memory, once they are gone, are left ``TIDYING`` seconds for it.
    ``reap_children`` collects those that are this process's own. A process in uninterruptible sleep (a wedged device
    or network file system) cannot be ended by anybody, one of another user (``sudo``) not by us.
    """
    began = time.monotonic()
    empty_looks = 0
    while empty_looks < 2:
        alive = _alive(find())
        empty_looks = 0 if alive else empty_looks + 1
        passed = time.monotonic() - began
        if alive and passed >= patience:
            break
        for identity in alive:
            if passed >= TIDYING or not _tidies_up(identity.pid):
                send_signal(identity, signal.SIGKILL)
        reap_children()
        time.sleep(0.002 if alive else 0)
    return [identity.pid for identity in alive]


def _alive(pids: list[int]) -> list[ProcessIdentity]:
    known = (ProcessIdentity.of(pid) for pid in pids)
    return [identity for identity in known if identity is not None and identity.alive()]


def _tidies_up(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return any(name in command for name in _TIDIERS)


def reap() -> dict[int, int]:
    """Collect every child that has ended (adopted orphans too): pid → wait status."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = status
    return ended


def send_signal(identity: ProcessIdentity, number: int) -> bool:
    """Signal exactly this process; False where it has ended, or is another user's.

    A pid file descriptor cannot be reused as a pid can.
    """
    with suppress(ProcessLookupError, PermissionError):
        fd = os.pidfd_open(identity.pid)
        try:
            if identity.alive():
                signal.pidfd_send_signal(fd, number)
                return True
        finally:
            os.close(fd)
    return False


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                children += [int(child) for child in (task / "children").read_text().split()]
    return children


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
