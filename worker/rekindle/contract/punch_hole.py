"""Freeing a part of a file while the rest keeps its offsets: the part becomes a hole, which takes no space."""

import ctypes
import os
import tempfile
from pathlib import Path

BLOCK = 1 << 16  # bytes; a multiple of the blocks of all common file systems, up to the 64 KiB pages of some machines
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of linux/falloc.h


def punch_hole(fd: int, begin: int, end: int) -> None:
    """Free the bytes from ``begin`` up to ``end``. Raises OSError, as where the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    offset, length = ctypes.c_int64(begin), ctypes.c_int64(end - begin)
    if libc.fallocate64(fd, _KEEP_SIZE | _PUNCH_HOLE, offset, length):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def can_punch_holes(directory: Path) -> bool:
    """Whether the file system of ``directory`` can free a part of a file. Raises OSError where it takes no file."""
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(bytes(2 * BLOCK))
        file.flush()
        try:
            punch_hole(file.fileno(), 0, BLOCK)
        except OSError:
            return False
    return True
