"""Opening files in a folder that a hostile job may have furnished."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_regular(root: Path, path: Path) -> BinaryIO | None:
    """``path`` beneath ``root`` opened for reading, or None where there is no regular file.

    No component below ``root`` is followed if it is a symbolic link, and nothing but a regular file is opened: a link
    to the server's token, a FIFO that would block a thread for ever and a device are all as good as absent.
    """
    *folders, name = path.relative_to(root).parts
    try:
        fd = _open_beneath(root, folders, name)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    return os.fdopen(fd, "rb")


def _open_beneath(root: Path, folders: list[str], name: str) -> int:
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(name, _FILE, dir_fd=folder)
    finally:
        os.close(folder)


def read_small(root: Path, path: Path, limit: int = 1 << 20) -> bytes | None:
    """The whole of a small file, or None where there is none or it has more than ``limit`` bytes."""
    file = open_regular(root, path)
    if file is None:
        return None
    with file:
        data = file.read(limit + 1)
    return data if len(data) <= limit else None


def modified_at(root: Path, path: Path) -> float | None:
    """When a regular file was last written, in seconds since the epoch, or None where there is none."""
    file = open_regular(root, path)
    if file is None:
        return None
    with file:
        return os.fstat(file.fileno()).st_mtime


def is_regular(path: Path) -> bool:
    """Whether opening ``path`` by its name would not block, nor lead elsewhere."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def folder_names(folder: Path) -> list[str]:
    """The names in ``folder``, or none where there is no such folder (or it is a link)."""
    with suppress(OSError):
        fd = os.open(folder, _FOLDER)
        try:
            with os.scandir(fd) as entries:
                return [entry.name for entry in entries]
        finally:
            os.close(fd)
    return []
