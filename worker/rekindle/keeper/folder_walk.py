"""Looking through folders that a script fills as it likes, without ever taking long."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

MOST_ENTRIES = 20_000
DEEPEST = 10


def files_below(folder: Path, most: int = MOST_ENTRIES) -> Iterator[os.DirEntry[str]]:
    """The regular files below ``folder``, those of upper folders first, until ``most`` names have been seen.

    No link is followed, nothing hidden is entered; what cannot be read, or is deeper than ten folders, is passed over.
    """
    waiting = deque([(str(folder), 0)])
    left = most
    while waiting:
        path, depth = waiting.popleft()
        for entry, is_folder, is_file in _entries(path, left):
            left -= 1
            if is_file:
                yield entry
            elif is_folder and depth < DEEPEST and not entry.name.startswith("."):
                waiting.append((entry.path, depth + 1))


def _entries(path: str, most: int) -> list[tuple[os.DirEntry[str], bool, bool]]:
    """What lies in the folder at ``path``, each with whether it is a folder and whether it is a regular file."""
    found: list[tuple[os.DirEntry[str], bool, bool]] = []
    with suppress(OSError), os.scandir(path) as entries:
        found.extend(
            (entry, entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False))
            for entry in islice(entries, most)
        )
    return found
