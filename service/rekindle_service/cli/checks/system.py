"""What the kernel and the network of this machine must provide."""

import os
import resource
import socket
import time
from pathlib import Path

from rekindle.contract.processes import set_child_subreaper
from rekindle_service.cli.checks.finding import Finding, at_least, ok, problem, warning

_RELEASE_YEAR = 1_735_689_600  # seconds since the epoch: 2025, before the first release
_TOLERANCE = 5.0  # seconds


def system(home: Path) -> list[Finding]:
    kernel = [pidfd(), subreaper(), open_files(), oom_count(), kernel_log()]
    return [loopback(), host_name(), *kernel, clock(time.time(), last_written(home))]


def loopback(host: str = "127.0.0.1") -> Finding:
    """The server, torchrun's store and the ranks all listen on free ports."""
    try:
        with socket.create_server((host, 0)) as listener:
            return ok("loopback", f"{host} accepts listeners (port {listener.getsockname()[1]} was free)")
    except OSError as error:
        advice = "Bring the loopback interface up: ip link set lo up"
        return problem("loopback", f"nothing can listen on {host}: {error}", advice)


def host_name(name: str | None = None) -> Finding:
    """gloo resolves its own host name; where that fails, no process group can be created."""
    name = socket.gethostname() if name is None else name
    try:
        addresses = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None)})
    except (OSError, UnicodeError) as error:
        advice = f"Add a line to /etc/hosts: 127.0.1.1 {name}"
        return problem("host name", f"{name!r} does not resolve: {error}", advice)
    return ok("host name", f"{name} is {', '.join(addresses)}")


def pidfd() -> Finding:
    """Without a process descriptor, a signal might reach another process that was given the pid of a dead rank."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return problem("pidfd", f"not available: {error}", "Use Linux 5.3 or later; seccomp may forbid it as well.")
    return ok("pidfd", "processes can be signalled without mistaking one for another")


def subreaper() -> Finding:
    """Makes this short-lived process a subreaper: keepers rely on being able to."""
    try:
        set_child_subreaper()
    except OSError as error:
        return problem("subreaper", f"not available: {error}", "A keeper could lose a job's children; allow prctl.")
    return ok("subreaper", "no process of a job can escape its keeper")


def open_files(limit: int | None = None) -> Finding:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    advice = "Data loaders with many workers need more: ulimit -n 65536, or LimitNOFILE= in the service unit."
    if soft == resource.RLIM_INFINITY:
        return ok("open files", "no limit")
    detail = f"at most {soft} per process"
    return at_least("open files", soft, enough=1024, minimum=256, detail=detail, advice=advice)


def oom_count(vmstat: Path = Path("/proc/vmstat")) -> Finding:
    """The count distinguishes a rank that the out-of-memory killer ended from one that a person killed."""
    try:
        lines = vmstat.read_text().splitlines()
    except OSError as error:
        lines = [str(error)]
    count = next((line.split()[1] for line in lines if line.startswith("oom_kill ")), None)
    if count is None:
        return warning("out of memory", f"{vmstat} has no oom_kill", "Such a kill is reported as a plain SIGKILL.")
    return ok("out of memory", f"kills are counted ({count} since boot)")


def kernel_log(log: Path = Path("/dev/kmsg")) -> Finding:
    """The log names the process that was killed; the count alone does not."""
    try:
        os.close(os.open(log, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        advice = "Out-of-memory kills are then known by their count alone; sysctl kernel.dmesg_restrict=0 opens it."
        return warning("kernel log", f"{log} cannot be read: {error.strerror}", advice)
    return ok("kernel log", "readable: it names the process that the out-of-memory killer ended")


def last_written(home: Path) -> float | None:
    """When any entry of the home was last written, in seconds since the epoch."""
    try:
        return max((entry.stat().st_mtime for entry in home.iterdir()), default=None)
    except OSError:
        return None


def clock(now: float, written: float | None) -> Finding:
    """``written``: when the home was last written. Only times that people read depend on this clock."""
    text = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < _RELEASE_YEAR:
        return warning("clock", f"{text} cannot be right", "Set it, preferably with chrony or systemd-timesyncd.")
    if written is not None and written > now + _TOLERANCE:
        detail = f"{text}, but the home was written {written - now:.0f} s after that"
        return warning("clock", detail, "The clock was set back, so times of jobs will be inconsistent. Use NTP.")
    return ok("clock", text)
