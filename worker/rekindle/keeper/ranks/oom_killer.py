"""Was it the kernel's out-of-memory killer? To the process it looks like any SIGKILL."""

import os
from pathlib import Path

_KMSG = Path("/dev/kmsg")
_VMSTAT = Path("/proc/vmstat")


def oom_kills() -> int:
    """Processes that the kernel has killed for memory since boot, on the whole machine and in its cgroups."""
    counters = dict(line.split() for line in _VMSTAT.read_text().splitlines())
    return int(counters.get("oom_kill", 0))


def oom_evidence(pid: int, kills_before: int) -> str | None:
    """Why the end of ``pid`` by SIGKILL is attributed to the out-of-memory killer, or None when it is not.

    The kernel's log names the process, where this user may read it; else its count must have grown meanwhile.
    """
    kills = oom_kills() - kills_before
    if kills <= 0:
        return None
    log = _kernel_log()
    if log is None:
        return f"the kernel's count of out-of-memory kills grew by {kills} during the attempt"
    found = [line for line in log if f"Killed process {pid} " in line]
    return found[-1].partition(";")[2].strip() if found else None


def _kernel_log() -> list[str] | None:
    try:
        fd = os.open(_KMSG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    lines: list[str] = []
    try:
        while True:
            lines.append(os.read(fd, 8192).decode(errors="replace"))
    except BlockingIOError:
        return lines
    except OSError:
        return lines or None
    finally:
        os.close(fd)
