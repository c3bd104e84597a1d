"""Was it the kernel's out-of-memory killer? To the process it looks like any SIGKILL."""

from pathlib import Path

from rekindle.keeper.ranks.kernel_log import kernel_log

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
    log = kernel_log()
    if log is None:
        return f"the kernel's count of out-of-memory kills grew by {kills} during the attempt"
    found = [line for line in log if f"Killed process {pid} " in line]
    return found[-1].partition(";")[2].strip() if found else None
