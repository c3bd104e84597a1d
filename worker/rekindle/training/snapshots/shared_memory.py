"""Snapshots in shared memory, taken more often than the disk allows, for a restart on the same machine.

They have the form of any snapshot and are verified like one. A reboot ends them, and their directory is removed when
the job ends. Others need the memory too: loaders and NCCL use ``/dev/shm``.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.environment import RankEnv

_MAX_SHARE = 2  # at most 1/2 of what is free, for the snapshot being written
_HIERARCHIES = Path("/sys/fs/cgroup")


def shm_dir(env: RankEnv) -> Path | None:
    """Directory of this job in shared memory; None without a keeper on this machine to remove it."""
    if env.run_dir is None or env.generation is None:
        return None
    if env.node is None and env.local_world_size != env.world_size:
        return None
    directory = env.run_dir.memory
    return directory if directory.parent.is_dir() else None


def ensure_private_dir(directory: Path) -> None:
    """Create ``directory`` for this user alone. Raises PermissionError where it exists and others may write to it."""
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{directory} is not a directory of this user alone")


@dataclass(frozen=True, slots=True)
class SpaceRequest:
    """What one rank is to write, and what it found free, in bytes."""

    size: int
    free: int = 0
    problem: str | None = None


def request_space(directory: Path, size: int) -> SpaceRequest:
    """Make the request of this rank; creates ``directory`` if need be."""
    try:
        ensure_private_dir(directory)
        found = os.statvfs(directory)
        return SpaceRequest(size, min(found.f_bavail * found.f_frsize, _available_memory()))
    except OSError as error:
        return SpaceRequest(size, problem=str(error))


def check_free_space(directory: Path, requests: list[SpaceRequest]) -> str | None:
    """Explain why the files of all ranks together must not be written to ``directory``; None where they may."""
    if problems := [each.problem for each in requests if each.problem is not None]:
        return problems[0]
    size, free = sum(each.size for each in requests), min(each.free for each in requests)
    if size * _MAX_SHARE <= free:
        return None
    return f"{size >> 20} MB are more than half of the {free >> 20} MB that are free in {directory.parent}"


def _available_memory() -> int:
    """Read what the kernel estimates, in bytes; a container's own limit is not included."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/meminfo has no line MemAvailable")


@dataclass(frozen=True, slots=True)
class _CgroupFiles:
    """Names of one version of cgroups."""

    limit: str
    used: str
    reclaimable: str  # key in ``memory.stat``: cached pages of files on disk, which the kernel drops when it needs to


_V2 = _CgroupFiles("memory.max", "memory.current", "inactive_file")
_V1 = _CgroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def free_in_cgroup(groups: Path = Path("/proc/self/cgroup"), hierarchies: Path = _HIERARCHIES) -> int | None:
    """Read how many bytes this process and those in its control group may still take; None without a limit.

    A cluster's scheduler sets a limit for each job. Pages of ``/dev/shm`` count there, and a group that exceeds its
    limit loses a process to the kernel's OOM killer.
    """
    free = [_free(directory, files) for directory, files in _own_groups(groups, hierarchies)]
    return min((each for each in free if each is not None), default=None)


def _own_groups(groups: Path, hierarchies: Path) -> Iterator[tuple[Path, _CgroupFiles]]:
    """Yield the directories of the group and of all above it, each of which may have a limit."""
    with suppress(OSError):
        for line in groups.read_text().splitlines():
            number, controllers, name = line.split(":", 2)
            if number == "0":
                root, files = hierarchies, _V2
            elif "memory" in controllers.split(","):
                root, files = hierarchies / "memory", _V1
            else:
                continue
            group = root / name.lstrip("/")
            yield from ((each, files) for each in (group, *group.parents) if each.is_relative_to(root))


def _free(group: Path, files: _CgroupFiles) -> int | None:
    """Read what one group may still take; None without a limit, or without its files, as in a container's own view."""
    try:
        limit, used = ((group / name).read_text().strip() for name in (files.limit, files.used))
        if not limit.isdecimal():  # "max"
            return None
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return max(0, int(limit) - int(used) + int(stat.get(files.reclaimable, "0")))
    except (OSError, ValueError):
        return None
