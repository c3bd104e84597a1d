"""A process that swaps files and directories for links all the time, as a person may while the server reads them."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SWAPS = """
import itertools, os, random, sys, time
uid, pause = int(sys.argv[1]), float(sys.argv[2])
if uid != os.getuid():
    os.setgid(uid)
    os.setuid(uid)
swapped = [*zip(sys.argv[3::2], sys.argv[4::2])]
for path, goal in itertools.cycle(swapped):
    os.rename(path, f"{path}.kept")
    os.symlink(goal, path)
    os.unlink(path)
    os.rename(f"{path}.kept", path)
    time.sleep(random.random() * pause)
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
def swapping(goals: Mapping[Path, Path], uid: int | None = None, pause: float = 0.0) -> Iterator[Swaps]:
    """Within, each path of ``goals`` is there or a link to its goal, in turn.

    ``uid``: of the process. ``pause``: longest time in seconds between two swaps, so that some reads see no swap.
    """
    words = [str(each) for pair in goals.items() for each in pair]
    argv = [sys.executable, "-c", _SWAPS, str(os.getuid() if uid is None else uid), str(pause), *words]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        try:
            yield Swaps(process)
        finally:
            process.kill()
