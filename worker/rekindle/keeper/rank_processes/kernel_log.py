"""The kernel's log, where this user may read it: who ran out of memory, and which GPU has failed.

To a process the out-of-memory killer looks like any SIGKILL.
"""

import os
import re
from pathlib import Path

_GPU = re.compile(r"\(PCI:(?P<bus>[0-9a-f:.]+)\)")
_KMSG = Path("/dev/kmsg")
_VMSTAT = Path("/proc/vmstat")


def kernel_log() -> list[str] | None:
    """All records, oldest first: ``priority,sequence,microseconds,flags;text``. None where it cannot be read."""
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


def driver_messages(since: float, bus_ids: set[str] | None = None) -> list[str]:
    """What NVIDIA's driver has written since ``since`` (seconds of CLOCK_MONOTONIC, in which the kernel counts too).

    ``bus_ids``: of the GPUs that it must be about, where it names one.
    """
    found = (record.partition(";") for record in kernel_log() or () if "NVRM:" in record)
    return [text.strip() for head, _, text in found if _seconds(head) >= since and _is_about(text, bus_ids)]


def _is_about(text: str, bus_ids: set[str] | None) -> bool:
    named = _GPU.search(text)
    return bus_ids is None or named is None or named["bus"].partition(".")[0] in bus_ids


def _seconds(head: str) -> float:
    fields = head.split(",")
    return int(fields[2]) / 1e6 if len(fields) > 2 and fields[2].isdecimal() else 0.0


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
    log = kernel_log()
    if log is None:
        return f"the kernel's count of out-of-memory kills grew by {kills} during the attempt"
    found = [line for line in log if f"Killed process {pid} " in line]
    return found[-1].partition(";")[2].strip() if found else None
