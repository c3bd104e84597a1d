"""Snapshots in shared memory, taken more often than the disk allows, for a restart on the same machine.

They have the form of any snapshot and are verified like one. A reboot ends them, and their directory is removed when
the job ends. Others need the memory too: loaders and NCCL use ``/dev/shm``.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.environment import RankEnv

_MAX_SHARE = 2  # at most 1/2 of what is free, for the snapshot being written


def shm_dir(env: RankEnv) -> Path | None:
    """The directory of this job; None without a keeper on this machine to remove it."""
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
    """The request of this rank; creates ``directory`` if need be."""
    try:
        ensure_private_dir(directory)
        found = os.statvfs(directory)
        return SpaceRequest(size, min(found.f_bavail * found.f_frsize, _available_memory()))
    except OSError as error:
        return SpaceRequest(size, problem=str(error))


def check_free_space(directory: Path, requests: list[SpaceRequest]) -> str | None:
    """Why the files of all ranks together must not be written to ``directory``, or None."""
    if problems := [each.problem for each in requests if each.problem is not None]:
        return problems[0]
    size, free = sum(each.size for each in requests), min(each.free for each in requests)
    if size * _MAX_SHARE <= free:
        return None
    return f"{size >> 20} MB are more than half of the {free >> 20} MB that are free in {directory.parent}"


def _available_memory() -> int:
    """Bytes, as the kernel estimates them; a container's own limit is not included."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/meminfo has no line MemAvailable")
