"""What the kernel must offer for processes to be watched, ended and judged."""

import os
import resource
import time
from pathlib import Path

from rekindle.contract.processes import set_child_subreaper
from rekindle_service.cli.checks.finding import Finding, at_least, ok, problem, warning

_SOME_YEAR = 1_735_689_600  # seconds since the epoch: 2025, before which this program was not
_TOLERANCE = 5.0  # seconds


def kernel(home: Path) -> list[Finding]:
    return [pidfd(), subreaper(), open_files(), oom_count(), kernel_log(), clock(time.time(), newest_file(home))]


def pidfd() -> Finding:
    """Without a handle a signal might reach a stranger that was given the pid of a dead rank."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return problem("pidfd", f"not there: {error}", "Linux 5.3 or later is needed; seccomp may forbid it, too.")
    return ok("pidfd", "processes can be signalled without mistaking one for another")


def subreaper() -> Finding:
    """Makes this short-lived process one: that it can be is what keepers rely on."""
    try:
        set_child_subreaper()
    except OSError as error:
        return problem("subreaper", f"not there: {error}", "A keeper could lose a job's children; is prctl forbidden?")
    return ok("subreaper", "no process of a job can escape its keeper")


def open_files(limit: int | None = None) -> Finding:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    advice = "Data loaders with many workers need more: ulimit -n 65536, or LimitNOFILE= in the service unit."
    if soft == resource.RLIM_INFINITY:
        return ok("open files", "no limit")
    return at_least("open files", soft, enough=1024, least=256, detail=f"at most {soft} a process", advice=advice)


def oom_count(vmstat: Path = Path("/proc/vmstat")) -> Finding:
    """By it a rank that the kernel killed for memory is told from one that somebody killed."""
    try:
        lines = vmstat.read_text().splitlines()
    except OSError as error:
        lines = [str(error)]
    count = next((line.split()[1] for line in lines if line.startswith("oom_kill ")), None)
    if count is None:
        return warning("out of memory", f"{vmstat} has no oom_kill", "Such a kill will be told as a plain SIGKILL.")
    return ok("out of memory", f"kills are counted ({count} since boot)")


def kernel_log(log: Path = Path("/dev/kmsg")) -> Finding:
    """The log names the process that was killed; the count alone does not."""
    try:
        os.close(os.open(log, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        advice = "Kills for memory are then told by the kernel's count alone; sysctl kernel.dmesg_restrict=0 opens it."
        return warning("kernel log", f"{log} cannot be read: {error.strerror}", advice)
    return ok("kernel log", "it can be read: the victim of the out-of-memory killer is told")


def newest_file(home: Path) -> float | None:
    """When anything in the home was last written, in seconds since the epoch."""
    try:
        return max((entry.stat().st_mtime for entry in home.iterdir()), default=None)
    except OSError:
        return None


def clock(now: float, newest: float | None) -> Finding:
    """``newest``: when the home was last written. Only times that people read depend on this clock."""
    told = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < _SOME_YEAR:
        return warning("clock", f"{told} cannot be right", "Set it, best by chrony or systemd-timesyncd.")
    if newest is not None and newest > now + _TOLERANCE:
        detail = f"{told}, but the home was written {newest - now:.0f} s after that"
        return warning("clock", detail, "The clock was set back: times of jobs will look odd. Keep it by NTP.")
    return ok("clock", told)
