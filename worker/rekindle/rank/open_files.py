"""What a script has left in buffers: an interpreter writes it out at its end, a forked process that leaves does not."""

import ctypes
import gc
import io
from contextlib import suppress


def write_out_open_files() -> None:
    """Flush every file that is still open, the upper layers of each first, and then those of C libraries."""
    objects = gc.get_objects()
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, io.IOBase)}
    for file in sorted((each for each in objects if type(each) in kinds), key=_layer):
        with suppress(Exception):  # it is closed, or cannot be written to: an interpreter says nothing either
            file.flush()
    ctypes.CDLL(None).fflush(None)


def _layer(file: io.IOBase) -> int:
    """Text lies on what turns it into other bytes (gzip), if anything does, and that on a buffer."""
    if isinstance(file, io.TextIOBase):
        return 0
    return 2 if isinstance(file, io.BufferedWriter | io.BufferedRandom) else 1
