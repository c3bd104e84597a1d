"""Room and speed where jobs are kept, and the kind of file system that is."""

import os
import shutil
import statistics
import time
from pathlib import Path

from rekindle_service.cli.checks.finding import Finding, at_least, ok, problem, warning
from rekindle_service.cli.wording import size

_MB = 10**6
_WRITES = 7
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "lustre", "glusterfs", "ceph"})
_MEMORY = frozenset({"tmpfs", "ramfs"})


def storage(home: Path) -> list[Finding]:
    """``home`` need not exist yet: its nearest existing parent stands for it."""
    place = nearest_folder(home)
    filesystem = filesystem_of(place, Path("/proc/self/mountinfo").read_text(errors="replace"))
    return [disk_space(place), judge_filesystem(filesystem), write_speed(place), shared_memory()]


def nearest_folder(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def disk_space(place: Path) -> Finding:
    free = shutil.disk_usage(place).free
    inodes = os.statvfs(place)
    if inodes.f_files and inodes.f_favail < 10_000:
        return problem("disk", f"{inodes.f_favail} files may still be made in {place}", "Delete what is not needed.")
    advice = "Delete old jobs (rekindle delete JOB) or move REKINDLE_HOME to a larger disk."
    detail = f"{size(free)} free in {place}"
    return at_least("disk", free, enough=5_000 * _MB, least=200 * _MB, detail=detail, advice=advice)


def filesystem_of(place: Path, mountinfo: str) -> str:
    """The type of the file system that holds ``place``: that of the longest mount point above it."""
    best = ("", "unknown")
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        if place.resolve().is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, after.split()[0])
    return best[1]


def judge_filesystem(kind: str) -> Finding:
    if kind in _NETWORK:
        advice = "Put REKINDLE_HOME on a local disk: SQLite and file locks cannot be relied on over a network."
        return problem("file system", f"{kind}, a network file system", advice)
    if kind in _MEMORY:
        return warning("file system", f"{kind}: gone after a reboot", "Put REKINDLE_HOME on a disk.")
    return ok("file system", kind)


def write_speed(place: Path) -> Finding:
    """Time to write a page so that it survives a power cut; every journal record and row costs about one."""
    probe = place / f".rekindle-doctor-{os.getpid()}"
    try:
        seconds = _time_writes(probe)
    except OSError as error:
        return problem("disk writes", f"{place} cannot be written: {error.strerror}", "Check owner and mount options.")
    finally:
        probe.unlink(missing_ok=True)
    detail = f"4 kB are durable within {seconds * 1000:.1f} ms"
    advice = "Snapshots and submits will be slow: use a local disk."
    return at_least("disk writes", -seconds, enough=-0.05, least=-1.0, detail=detail, advice=advice)


def _time_writes(probe: Path) -> float:
    """Seconds of the median write with fsync."""
    taken = []
    fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        for _ in range(_WRITES):
            begun = time.monotonic()
            os.write(fd, b"x" * 4096)
            os.fsync(fd)
            taken.append(time.monotonic() - begun)
    finally:
        os.close(fd)
    return statistics.median(taken)


def shared_memory(place: Path = Path("/dev/shm")) -> Finding:  # noqa: S108  # looked at, nothing is written there
    """Data-loader workers hand batches over in it; a container often has 64 MB only."""
    if not place.is_dir():
        return warning("shared memory", f"there is no {place}", "Data-loader workers need it: mount a tmpfs there.")
    usage = shutil.disk_usage(place)
    advice = "Data-loader workers may die with SIGBUS: give the container more (docker run --shm-size=8g)."
    detail = f"{size(usage.free)} of {size(usage.total)} free in {place}"
    return at_least("shared memory", usage.free, enough=500 * _MB, least=16 * _MB, detail=detail, advice=advice)
