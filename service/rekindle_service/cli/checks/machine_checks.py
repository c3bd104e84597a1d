"""What this machine must provide: kernel, network, disk, a private home, and what isolates jobs."""

import os
import re
import resource
import shutil
import socket
import stat
import statistics
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rekindle.contract.files import can_punch_holes, read_json
from rekindle.contract.locks import lock_holder
from rekindle.contract.processes import set_child_subreaper
from rekindle_service.cli.background_server import ask
from rekindle_service.cli.checks import Finding, at_least, ok, problem, warning
from rekindle_service.cli.formatting import size
from rekindle_service.client import NoServerError, ProblemError, local_server
from rekindle_service.config.home import DELETED, Home
from rekindle_service.config.settings import Settings
from rekindle_service.launch.isolation.job_isolation import IsolationError, isolation_of
from rekindle_service.launch.isolation.sandbox import find_program, lack_of_sandbox

# --- kernel and network

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
    """Check for process descriptors: else a signal might reach a process that was given the pid of a dead rank."""
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


_MB = 10**6
_WRITES = 7
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "lustre", "glusterfs", "ceph"})
_MEMORY = frozenset({"tmpfs", "ramfs"})
_MIN_FREE_FILES = 10_000
_DELETION_SECONDS = 600
_OTHER_USERS = 0o077
_OCTAL = re.compile(r"\\([0-7]{3})")  # as the kernel writes a blank
_TRAVERSE = 0o011  # of a home whose jobs run as other users

# --- the disk


def storage(home: Path) -> list[Finding]:
    """``home`` need not exist yet: its closest existing parent is checked instead."""
    directory = next(path for path in (home, *home.parents) if path.is_dir())
    filesystem = filesystem_of(directory, Path("/proc/self/mountinfo").read_text(errors="replace"))
    return [disk_space(directory), check_filesystem(filesystem), write_speed(directory), shared_memory()]


def disk_space(directory: Path) -> Finding:
    free = shutil.disk_usage(directory).free
    inodes = os.statvfs(directory)
    if inodes.f_files and inodes.f_favail < _MIN_FREE_FILES:
        detail = f"only {inodes.f_favail} more files can be created in {directory}"
        return problem("disk", detail, "Delete old jobs: rekindle delete JOB")
    advice = "Delete old jobs (rekindle delete JOB) or move REKINDLE_HOME to a larger disk."
    detail = f"{size(free)} free in {directory}"
    return at_least("disk", free, enough=5_000 * _MB, minimum=200 * _MB, detail=detail, advice=advice)


def filesystem_of(directory: Path, mountinfo: str) -> str:
    """The type of the file system that contains ``directory``: that of the longest mount point above it."""
    best = ("", "unknown")
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), before.split()[4])
        if directory.resolve().is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, after.split()[0])
    return best[1]


def check_filesystem(kind: str) -> Finding:
    if kind in _NETWORK:
        advice = "Move REKINDLE_HOME to a local disk: SQLite and file locks are unreliable over a network."
        return problem("file system", f"{kind}, a network file system", advice)
    if kind in _MEMORY:
        return warning("file system", f"{kind}: lost at a reboot", "Move REKINDLE_HOME to a disk.")
    return ok("file system", kind)


def write_speed(directory: Path) -> Finding:
    """Time to write a page so that it survives a power cut; every journal record and row costs about one."""
    probe = directory / f".rekindle-doctor-{os.getpid()}"
    try:
        seconds = _time_writes(probe)
    except OSError as error:
        detail = f"{directory} cannot be written: {error.strerror}"
        return problem("disk writes", detail, "Check its owner and the mount options.")
    finally:
        probe.unlink(missing_ok=True)
    detail = f"4 kB are durable within {seconds * 1000:.1f} ms"
    advice = "Snapshots and submits will be slow: use a local disk."
    return at_least("disk writes", -seconds, enough=-0.05, minimum=-1.0, detail=detail, advice=advice)


def _time_writes(probe: Path) -> float:
    """Seconds of the median write with fsync."""
    durations = []
    fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        for _ in range(_WRITES):
            start = time.monotonic()
            os.write(fd, b"x" * 4096)
            os.fsync(fd)
            durations.append(time.monotonic() - start)
    finally:
        os.close(fd)
    return statistics.median(durations)


def shared_memory(directory: Path = Path("/dev/shm")) -> Finding:  # noqa: S108  # only inspected, never written
    """Data-loader workers pass batches through it; a container often has only 64 MB."""
    if not directory.is_dir():
        advice = "Data-loader workers need it: mount a tmpfs there."
        return warning("shared memory", f"{directory} does not exist", advice)
    usage = shutil.disk_usage(directory)
    advice = "Data-loader workers may die with SIGBUS: give the container more (docker run --shm-size=8g)."
    detail = f"{size(usage.free)} of {size(usage.total)} free in {directory}"
    return at_least("shared memory", usage.free, enough=500 * _MB, minimum=16 * _MB, detail=detail, advice=advice)


# --- the home


def home_access(home: Home) -> list[Finding]:
    """Who may read the home of this machine's server, and whether its server.json is right."""
    if not home.root.exists():
        return [ok("home", f"{home.root} does not exist yet: the first `rekindle serve` creates it")]
    paths = {"home": home.root, "token": home.token, "server.json": home.server_json}
    return [*(private(name, path) for name, path in paths.items() if path.exists()), server(home), *deletions(home)]


def deletions(home: Home) -> list[Finding]:
    """Directories of deleted jobs that nothing removes, and whether the space of logs can be bounded."""
    if old := sorted(_left_by_deletions(home)):
        detail = f"directories of deleted jobs are still there: {len(old)}, such as {old[0]}"
        advice = "The page Disk shows why: a file system is mounted there, or files belong to another user."
        return [warning("deletions", detail, advice)]
    if home.runs.is_dir() and not can_punch_holes(home.runs):
        advice = "The setting log_bytes has no effect there: a script that prints without end fills the disk."
        return [warning("logs", f"the file system of {home.runs} cannot free a part of a file", advice)]
    return [ok("deletions", "nothing waits to be removed")]


def _left_by_deletions(home: Home) -> Iterator[Path]:
    for path in home.runs.glob(f"{DELETED}*"):
        with suppress(FileNotFoundError):  # the server removes it meanwhile
            if time.time() - path.lstat().st_ctime > _DELETION_SECONDS:
                yield path


def private(name: str, path: Path) -> Finding:
    """Whoever can read the token can run code as this user. Precondition: ``path`` exists."""
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.getuid():
        return problem(name, f"{path} belongs to user {status.st_uid}", "Use your own home: set REKINDLE_HOME.")
    if mode & _OTHER_USERS & ~(_TRAVERSE if path.is_dir() else 0):
        advice = f"Restrict it: chmod {mode & ~_OTHER_USERS:o} {path}"
        return problem(name, f"other users can access {path}: its mode is {mode:04o}", advice)
    if mode & _OTHER_USERS:
        return ok(name, f"others can reach what they own in {path}, and list nothing ({mode:04o})")
    return ok(name, f"only you can access {path} ({mode:04o})")


def server(home: Home) -> Finding:
    """Check that the process that locks the home is the server in server.json, and answers."""
    owner, announced = lock_holder(home.server_lock), read_json(home.server_json)
    pid = announced.get("pid") if isinstance(announced, dict) else None
    if owner is None and announced is None:
        return ok("server", "none runs")
    if owner is None:
        detail = f"{home.server_json} is stale: no server owns the home, process {pid} was killed"
        return warning("server", detail, "Start one, it finds all jobs again: rekindle serve")
    if owner != pid:
        detail = f"process {owner} owns the home, but {home.server_json} names {pid}"
        return warning("server", detail, "It may be starting: check again. If this persists, restart it.")
    try:
        ask(local_server(home))
    except NoServerError:
        return problem("server", f"process {pid} owns the home but does not answer", f"End and restart it: kill {pid}")
    except ProblemError as error:
        return problem("server", f"process {pid} answers with an error: {error}", "Its log has more about it.")
    return ok("server", f"process {pid} answers")


# --- isolation

_CGROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_ISOLATION_ADVICE = "Several people, or code that you do not trust? See docs/security.md for job_users and sandbox."


def isolation(settings: Settings) -> list[Finding]:
    """Check the settings, then each kind of isolation that there is."""
    return [configured(settings), job_users(os.geteuid()), sandbox(lack_of_sandbox(find_program())), cgroup()]


def configured(settings: Settings) -> Finding:
    """A server of these settings would not start where they cannot be applied."""
    try:
        found = isolation_of(settings, settings.home_dir)
    except (IsolationError, OSError) as error:
        return problem("isolation", str(error), "Change the setting, or what it needs; the server does not start.")
    if os.geteuid() == 0 and not found.users:
        return warning("isolation", f"{found.describe()} Here that is root.", "Do not serve as root, or set job_users.")
    return ok("isolation", found.describe() if found.hides_the_server else f"{found.describe()} {_ISOLATION_ADVICE}")


def job_users(uid: int) -> Finding:
    if uid != 0:
        return ok("job users", "not possible: only a server that runs as root starts jobs as other users")
    return ok("job users", "possible: the setting job_users lets the jobs of each owner run as a user of their own")


def sandbox(lack: str | None) -> Finding:
    """``lack``: why none can be made."""
    return ok("sandbox", "possible: bubblewrap works" if lack is None else f"not possible: {lack}")


def cgroup(roots: tuple[Path, ...] = _CGROUPS) -> Finding:
    """Name the limits that a cgroup of version 2 could enforce."""
    root = next((each for each in roots if (each / "cgroup.controllers").exists()), None)
    if root is None:
        return ok("cgroup", "not possible: there is no cgroup file system of version 2")
    found = set((root / "cgroup.controllers").read_text().split()) & {"memory", "cpu", "pids"}
    if not found:
        return ok("cgroup", f"{root} has none of the controllers memory, cpu and pids: it can only end a whole job")
    return ok("cgroup", f"{root} can limit {', '.join(sorted(found))}, in a directory that this user may write to")
