"""Who a process is: a pid alone is reused, so identity is (pid, start time, boot id)."""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self


@cache
def boot_id() -> str:
    """The kernel's random id of this boot; another value means that every process we knew is gone."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _stat_fields(pid: int) -> list[str]:
    """Fields of ``/proc/PID/stat`` from field 3 (state) on; the command name before it may hold any byte."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def start_time(pid: int) -> int | None:
    """Start of ``pid`` in clock ticks since boot (field 22), or None when there is no such process."""
    try:
        return int(_stat_fields(pid)[19])
    except (FileNotFoundError, ProcessLookupError):
        return None


def process_state(pid: int) -> str | None:
    """The kernel's one-letter state of ``pid`` (R, S, D, T, Z …), or None when there is no such process."""
    try:
        return _stat_fields(pid)[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def parent_of(pid: int) -> int | None:
    """Pid of the parent of ``pid``, or None when there is no such process."""
    try:
        return int(_stat_fields(pid)[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def cpu_seconds(pid: int) -> float:
    """Processor time that ``pid`` has used so far, in seconds; 0 when there is no such process."""
    try:
        fields = _stat_fields(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def has_signal_handler(pid: int, number: int) -> bool:
    """Whether ``pid`` has a handler for the signal ``number``; False when there is no such process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    masks = (line.partition(":")[2] for line in lines if line.startswith("SigCgt:"))
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
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

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        return cls(int(value["pid"]), int(value["start_time"]), str(value["boot_id"]))

    def alive(self) -> bool:
        """True while this very process runs; a zombie has ended, and another process with its pid is not it."""
        if self.boot_id != boot_id() or start_time(self.pid) != self.start_time:
            return False
        return process_state(self.pid) not in (None, "Z", "X")
