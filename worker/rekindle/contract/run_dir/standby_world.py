"""What the ranks of a standby world have read before their attempt begins, and whether that is still so."""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rekindle.contract.run_dir.json_records import JsonRecord

MAX_INPUTS = 5_000  # files and directories; a rank that reads more waits there


@dataclass(frozen=True, slots=True)
class FileVersion(JsonRecord):
    """Another one where the file was changed or replaced; of a directory, where entries were."""

    modified: int  # nanoseconds since the epoch, as the next one
    changed: int  # by the kernel's clock, which no program sets
    size: int
    inode: int


def version_of(path: str) -> FileVersion | None:
    """None where there is no such file."""
    with suppress(OSError, ValueError):
        status = os.stat(path)  # noqa: PTH116  # quicker
        return FileVersion(status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
    return None


@dataclass(frozen=True, slots=True)
class HeldRank(JsonRecord):
    """A rank that waits at its first effect: what it has read, by path, and the paths at which it has found nothing."""

    arguments: list[str]  # of its script
    inputs: dict[str, FileVersion] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)  # of which it knows no more than that

    def changed(self) -> str | None:
        """The first path that is no longer what the rank has found there."""
        for path, before in self.inputs.items():
            if version_of(path) != before:
                return path
        appeared = (path for path in self.missing if os.path.lexists(path))
        return next(appeared, None) or next((path for path in self.directories if not Path(path).is_dir()), None)
