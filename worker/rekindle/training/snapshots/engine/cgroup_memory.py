"""What the memory limit of this process's control group still allows: a cluster's scheduler sets one for each job.

Pages of ``/dev/shm`` count there. A group that exceeds its limit loses a process to the kernel's OOM killer.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_HIERARCHIES = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class _Files:
    """Names of one version of cgroups."""

    limit: str
    used: str
    reclaimable: str  # key in ``memory.stat``: cached pages of files on disk, which the kernel drops when it needs to


_V2 = _Files("memory.max", "memory.current", "inactive_file")
_V1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def free_in_cgroup(groups: Path = Path("/proc/self/cgroup"), hierarchies: Path = _HIERARCHIES) -> int | None:
    """Bytes that this process and those in its group may take in addition; None where nothing limits them."""
    free = [_free(directory, files) for directory, files in _own_groups(groups, hierarchies)]
    return min((each for each in free if each is not None), default=None)


def _own_groups(groups: Path, hierarchies: Path) -> Iterator[tuple[Path, _Files]]:
    """The directories of the group and of all above it, each of which may have a limit."""
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


def _free(group: Path, files: _Files) -> int | None:
    """None where this group has no limit, or its files are not there, as in a container's own view."""
    try:
        limit, used = ((group / name).read_text().strip() for name in (files.limit, files.used))
        if not limit.isdecimal():  # "max"
            return None
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return max(0, int(limit) - int(used) + int(stat.get(files.reclaimable, "0")))
    except (OSError, ValueError):
        return None
