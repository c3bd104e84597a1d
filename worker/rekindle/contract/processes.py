"""Linux processes: who one is (a pid alone is reused), how to signal exactly that one, and what ties it to others."""

import ctypes
import os
import resource
import select
import signal
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from rekindle.contract.run_dir.json_records import JsonRecord

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_CPU_TOLERANCE = 0.8
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@cache
def boot_id() -> str:
    """The kernel's random id of this boot; another value means that every process we knew is gone."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def stat_fields(pid: int) -> list[str] | None:
    """Fields of ``/proc/PID/stat`` from field 3 (state) on, or None when there is no such process."""
    try:  # the command name before them may hold any byte
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def start_time(pid: int) -> int | None:
    """Start of ``pid`` in clock ticks since boot (field 22), or None when there is no such process."""
    fields = stat_fields(pid)
    return None if fields is None else int(fields[19])


def process_state(pid: int) -> str | None:
    """The kernel's one-letter state of ``pid`` (R, S, D, T, Z …), or None when there is no such process."""
    fields = stat_fields(pid)
    return None if fields is None else fields[0]


def parent_of(pid: int) -> int | None:
    """Pid of the parent of ``pid``, or None when there is no such process."""
    fields = stat_fields(pid)
    return None if fields is None else int(fields[1])


def cpu_seconds(pid: int, *, with_children: bool = False) -> float:
    """Processor time that ``pid`` has used so far, in seconds; 0 when there is no such process.

    ``with_children`` adds that of its children which have ended and were waited for.
    """
    ticks = (stat_fields(pid) or [])[11 : 15 if with_children else 13]
    return sum(map(int, ticks)) / _TICKS_PER_SECOND


def used_up_cpu_limit(pid: int) -> int | None:
    """Seconds of RLIMIT_CPU (hard) of ``pid`` where it has used them up, also when it has ended and is not reaped yet.

    The kernel counts by ticks, and sends SIGKILL somewhat before or after ``cpu_seconds`` reach the limit.
    """
    with suppress(OSError):
        limit = resource.prlimit(pid, resource.RLIMIT_CPU)[1]
        return limit if limit != resource.RLIM_INFINITY and cpu_seconds(pid) >= _CPU_TOLERANCE * limit else None
    return None


def has_signal_handler(pid: int, number: int) -> bool:
    """Whether ``pid`` has a handler for the signal ``number``; False when there is no such process."""
    with suppress(FileNotFoundError, ProcessLookupError):
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        masks = (line.partition(":")[2] for line in lines if line.startswith("SigCgt:"))
        return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)
    return False


def descendants(pid: int) -> list[int]:
    """Every process below ``pid``, nearest first. The keeper adopts orphans, so none of a run's can leave its tree."""
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in _children(parent)]
        found += level
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                children += [int(child) for child in (task / "children").read_text().split()]
    return children


def pids_in_namespace(pid: int) -> dict[int, int] | None:
    """The pids, as seen from here, of ``pid`` and all below it, by those that they have in their own pid namespace.

    None where that is ours: a sandbox counts its processes from 1.
    """
    if len(_namespace_pids(pid)) < 2:
        return None
    return {pids[-1]: each for each in (pid, *descendants(pid)) if len(pids := _namespace_pids(each)) > 1}


def _namespace_pids(pid: int) -> list[int]:
    """Pids of one process, from the namespace of ``/proc`` inwards; empty when there is no such process."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return [int(each) for each in line.split()[1:]]
    return []


@dataclass(frozen=True, slots=True)
class ProcessIdentity(JsonRecord):
    """One process of one boot of this machine."""

    pid: int
    start_time: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Self | None:
        started = start_time(pid)
        return None if started is None else cls(pid, started, boot_id())

    @classmethod
    def own(cls) -> Self:
        identity = cls.of(os.getpid())
        if identity is None:
            raise RuntimeError("/proc has no entry for this very process: is /proc mounted?")
        return identity

    def alive(self) -> bool:
        """True while this very process runs; a zombie has ended, and another process with its pid is not it."""
        fields = stat_fields(self.pid) if self.boot_id == boot_id() else None
        return fields is not None and int(fields[19]) == self.start_time and fields[0] not in ("Z", "X")

    def send_signal(self, number: int, *, wait: bool = False) -> bool:
        """Signal exactly this process; False where it has ended, or is another user's.

        The descriptor is opened first and the identity checked afterwards: the kernel cannot give the pid of an open
        descriptor to another process. ``wait`` returns only once the process has ended.
        """
        with suppress(ProcessLookupError, PermissionError):
            fd = os.pidfd_open(self.pid)
            try:
                if self.alive():
                    signal.pidfd_send_signal(fd, number)
                    if wait:
                        ended = select.poll()
                        ended.register(fd, select.POLLIN)
                        ended.poll()
                    return True
            finally:
                os.close(fd)
        return False


def _prctl(option: int, argument: int | bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def die_with_parent(parent: int) -> None:
    """Have the kernel SIGKILL this process when ``parent``, the process that started it, dies; at once if it has."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def set_child_subreaper() -> None:
    """Make descendants whose parent dies children of this process, so that none escapes it."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_process_name(name: str) -> None:
    """Set what ``ps -o comm`` and ``top`` show (up to 15 bytes): forked processes would all be called ``python``."""
    _prctl(_PR_SET_NAME, name.encode()[:15])


def forbid_core_dumps() -> None:
    """Forbid core files: a rank's has the size of its memory (1.4 GB on CPU) and lands in the user's code directory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def open_descriptors() -> set[int]:
    """Descriptors that this process has open."""
    listed = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    return {fd for fd in listed if os.path.lexists(f"/proc/self/fd/{fd}")}  # not that of the list itself
