"""Files that a script writes: found without ever taking long, and what they show of the progress of a script."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from rekindle.contract.run_dir.paths import RunDir

MAX_ENTRIES = 20_000
MAX_DEPTH = 10

WEIGHTS = (".bin", ".ckpt", ".distcp", ".pt", ".pth", ".safetensors")
"""Suffixes of files with weights, by torch, Lightning, Hugging Face and torch.distributed.checkpoint."""

RECORDS = (".csv", ".json", ".jsonl", ".log", ".txt", ".yaml", ".yml")
"""Suffixes of files that describe a training; TensorBoard's files have their mark in the middle of the name."""


class FileProgress:
    """For scripts that report no steps: compares with the files that there are when it is made, before an attempt."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._snapshots, self._weights = _list_files(run_dir.snapshots), _list_files(run_dir.code, WEIGHTS)

    def changed(self, *, by_itself: bool) -> bool:
        """Whether something has been saved since.

        Anything in the snapshot directory counts, which is for nothing else; in the working directory only weights do.
        Where the script failed by an exception of its own (``by_itself``), nothing in the working directory does, and
        no records in the snapshot directory: one that writes first and then hits a bug would be retried for ever.
        """
        now = _list_files(self._run_dir.snapshots)
        changed = [path for path in now.keys() | self._snapshots.keys() if now.get(path) != self._snapshots.get(path)]
        if by_itself:
            return any(not path.endswith(RECORDS) and ".tfevents." not in Path(path).name for path in changed)
        return bool(changed) or _list_files(self._run_dir.code, WEIGHTS) != self._weights


def _list_files(root: Path, suffixes: tuple[str, ...] = ("",)) -> dict[str, tuple[int, int]]:
    """Size and modification time in ns by path: changed means saved."""
    return {entry.path: _version(entry) for entry in walk_files(root) if entry.name.endswith(suffixes)}


def walk_files(root: Path, max_entries: int = MAX_ENTRIES) -> Iterator[os.DirEntry[str]]:
    """The regular files below ``root``, those of upper directories first, until ``max_entries`` names were listed.

    No link is followed, nothing hidden is entered; what cannot be read, or is deeper than ``MAX_DEPTH``, is skipped.
    """
    queue = deque([(str(root), 0)])
    left = max_entries
    while queue:
        directory, depth = queue.popleft()
        with suppress(OSError), os.scandir(directory) as entries:
            found = list(islice(entries, left))
            left -= len(found)
            for entry in found:
                if entry.is_file(follow_symlinks=False):
                    yield entry
                elif entry.is_dir(follow_symlinks=False) and depth < MAX_DEPTH and not entry.name.startswith("."):
                    queue.append((entry.path, depth + 1))


def _version(entry: os.DirEntry[str]) -> tuple[int, int]:
    with suppress(OSError):
        stat = entry.stat(follow_symlinks=False)
        return stat.st_size, stat.st_mtime_ns
    return 0, 0
