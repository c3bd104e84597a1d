"""A process that swaps files and directories for links all the time, as a person may while the server reads them."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SWAPS = """
import itertools, os, sys
swapped = [*zip(sys.argv[1::2], sys.argv[2::2])]
for path, goal in itertools.cycle(swapped):
    os.rename(path, f"{path}.kept")
    os.symlink(goal, path)
    os.unlink(path)
    os.rename(f"{path}.kept", path)
    sys.stdout.write(".")
    sys.stdout.flush()
"""


@dataclass(slots=True)
class Swaps:
    """``count`` is the number of swaps so far."""

    _process: "subprocess.Popen[bytes]"
    _count: int = 0

    @property
    def count(self) -> int:
        assert self._process.poll() is None, "the swapping process has ended"
        assert self._process.stdout is not None
        self._count += len(self._process.stdout.read() or b"")
        return self._count


@contextmanager
def swapping(goals: Mapping[Path, Path], uid: int | None = None) -> Iterator[Swaps]:
    """Within, each path of ``goals`` is there or a link to its goal, in turn. ``uid``: of the process."""
    words = [str(each) for pair in goals.items() for each in pair]
    argv = [sys.executable, "-c", _SWAPS, *words]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, user=uid, group=uid) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        try:
            yield Swaps(process)
        finally:
            process.kill()
