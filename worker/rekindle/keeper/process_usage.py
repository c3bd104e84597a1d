"""What a process and all below it use, by what the kernel counts. Nothing but reading: it disturbs no rank."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rekindle.keeper.process_tree import descendants

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_USER, _LAST_CPU, _RSS = 11, 15, 21  # places in /proc/PID/stat behind the name: utime … cstime, rss


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """Counted since the processes began, those included that have ended and were waited for."""

    cpu_seconds: float = 0.0
    rss_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    def __add__(self, other: Self) -> "ProcessUsage":
        return ProcessUsage(
            self.cpu_seconds + other.cpu_seconds,
            self.rss_bytes + other.rss_bytes,
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
        )


def usage_below(pid: int) -> ProcessUsage:
    """Of ``pid`` and everything that it has started; nothing where it has ended."""
    return sum((_usage_of(each) for each in (pid, *descendants(pid))), ProcessUsage())


def _usage_of(pid: int) -> ProcessUsage:
    read, written = _disk_bytes(pid)
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        ticks = sum(int(field) for field in fields[_USER:_LAST_CPU])
        return ProcessUsage(ticks / _TICKS, int(fields[_RSS]) * _PAGE, read, written)
    return ProcessUsage()


def _disk_bytes(pid: int) -> tuple[int, int]:
    """Bytes that ``pid`` has had read from and written to disks; zeros where the kernel does not tell us."""
    with suppress(OSError, ValueError, KeyError):
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        counted = dict(line.split(": ") for line in lines)
        return int(counted["read_bytes"]), int(counted["write_bytes"])
    return 0, 0
