"""The files below a directory, listed without ever taking long, whatever a script has put there."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

MAX_ENTRIES = 20_000
MAX_DEPTH = 10


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
