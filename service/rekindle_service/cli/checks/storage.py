"""Space and speed of the disk where jobs are stored, its file system, and who may read the home."""

import os
import shutil
import stat
import statistics
import time
from pathlib import Path

from rekindle.contract.files import read_json
from rekindle.contract.locks import lock_holder
from rekindle.contract.punch_hole import can_punch_holes
from rekindle_service.cli.background_server import running_server
from rekindle_service.cli.checks.finding import Finding, at_least, ok, problem, warning
from rekindle_service.cli.formatting import size
from rekindle_service.config.home import DELETED, Home

_MB = 10**6
_WRITES = 7
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "lustre", "glusterfs", "ceph"})
_MEMORY = frozenset({"tmpfs", "ramfs"})
_MIN_FREE_FILES = 10_000
_DELETION_SECONDS = 600
_OTHER_USERS = 0o077
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
        point = before.split()[4].encode().decode("unicode_escape")
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
    left = sorted(home.runs.glob(f"{DELETED}*")) if home.runs.is_dir() else []
    old = [path for path in left if time.time() - path.lstat().st_ctime > _DELETION_SECONDS]
    if old:
        detail = f"{len(old)} directories of deleted jobs are still there, such as {old[0]}"
        advice = "The page Disk shows why: a file system is mounted there, or files belong to another user."
        return [warning("deletions", detail, advice)]
    if home.runs.is_dir() and not can_punch_holes(home.runs):
        advice = "The setting log_bytes has no effect there: a script that prints without end fills the disk."
        return [warning("logs", f"the file system of {home.runs} cannot free a part of a file", advice)]
    return [ok("deletions", "nothing waits to be removed")]


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
    """Whether the process that locks the home is the server in server.json, and answers."""
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
    if running_server(home) is None:
        return problem("server", f"process {pid} owns the home but does not answer", f"End and restart it: kill {pid}")
    return ok("server", f"process {pid} answers")
