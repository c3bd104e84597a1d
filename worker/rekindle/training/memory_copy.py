"""A snapshot more often than the disk takes one: in shared memory, for a restart on the same machine.

It has the form of any snapshot and is checked like one. It is gone after a reboot, and its folder is removed when the
job ends. Whoever holds the memory must leave room for others: loaders and NCCL need ``/dev/shm`` too.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.environment import RankEnv

_SHARE_OF_FREE = 2  # at most one part in so many of what is free, for the copy being written


def memory_folder(env: RankEnv) -> Path | None:
    """Where the copies of this job lie; None without a keeper to remove them, or with ranks on other machines."""
    if env.run_dir is None or env.generation is None or env.local_world_size != env.world_size:
        return None
    folder = env.run_dir.memory
    return folder if folder.parent.is_dir() else None


def claim(folder: Path) -> None:
    """Make ``folder`` ours alone. Raises PermissionError where somebody else has been there first."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone")


@dataclass(frozen=True, slots=True)
class Claim:
    """What one rank is to put into a folder, and what it found free there, in bytes."""

    wanted: int
    free: int = 0
    obstacle: str | None = None


def claim_room(folder: Path, wanted: int) -> Claim:
    """The claim of this rank; ``folder`` is made ours if need be."""
    try:
        claim(folder)
        found = os.statvfs(folder)
        return Claim(wanted, min(found.f_bavail * found.f_frsize, _available_memory()))
    except OSError as error:
        return Claim(wanted, obstacle=str(error))


def lack_of_room(folder: Path, claims: list[Claim]) -> str | None:
    """Why the copies of all ranks together are not to be put into ``folder``, or None."""
    for each in claims:
        if each.obstacle is not None:
            return each.obstacle
    wanted, free = sum(each.wanted for each in claims), min(each.free for each in claims)
    if wanted * _SHARE_OF_FREE <= free:
        return None
    return f"{wanted >> 20} MB are more than half of the {free >> 20} MB that {folder.parent} has to give"


def _available_memory() -> int:
    """Bytes, as the kernel estimates them; a container's own limit is not seen here."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/meminfo has no line MemAvailable")
