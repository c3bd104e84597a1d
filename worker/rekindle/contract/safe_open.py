"""Opening files in a directory where a job may have planted links, FIFOs and devices."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ON_THE_WAY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_TEXT = 16 << 20  # bytes
_MAX_LISTED = 1 << 17  # names of a directory that are looked at


def open_regular(path: Path | str, directory: int | None = None) -> BinaryIO:
    """Open for reading what must be a regular file; ``directory`` is an open one that ``path`` is relative to.

    Only the last component is protected: use ``open_beneath`` where a job may replace directories on the way.
    Raises FileNotFoundError where there is something else or nothing, OSError for other trouble.
    """
    try:
        fd = os.open(path, _FILE, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise FileNotFoundError(error.errno, "not a regular file", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "not a regular file", str(path))
    return os.fdopen(fd, "rb")


def open_append(path: Path) -> int:
    """Open the regular file at ``path`` for appending, and make it where there is nothing; returns a descriptor.

    Raises OSError where there is something else: a FIFO without a reader would otherwise block for ever.
    """
    try:
        fd = os.open(path, _APPEND, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise FileExistsError(errno.EEXIST, "not a regular file", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileExistsError(errno.EEXIST, "not a regular file", str(path))
    return fd


def open_beneath(root: Path, path: Path) -> BinaryIO | None:
    """Open ``path`` beneath ``root`` for reading; None where there is no regular file.

    No component below ``root`` is followed if it is a symbolic link, and nothing but a regular file is opened: a link
    to the server's token, a FIFO that would block a thread for ever and a device all count as missing.
    """
    try:
        with directory_beneath(root, path.parent) as directory:
            return open_regular(path.name, directory)
    except (OSError, ValueError):
        return None


@contextmanager
def directory_beneath(root: Path, path: Path) -> Iterator[int]:
    """A descriptor of the directory ``path``, to which no link below ``root`` leads. Raises OSError and ValueError."""
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        directory = open_directory(path.relative_to(root), top)
    finally:
        os.close(top)
    try:
        yield directory
    finally:
        os.close(directory)


def open_in(directory: int, path: Path) -> BinaryIO:
    """Open ``path`` relative to an open directory, as ``open_beneath`` does. Raises OSError."""
    inner = open_directory(path.parent, directory)
    try:
        return open_regular(path.name, inner)
    finally:
        os.close(inner)


def open_directory(path: Path, directory: int | None = None) -> int:
    """A descriptor of the directory at ``path``, on the way to which nothing may be a link, nor itself.

    ``path`` is absolute, or relative to the open ``directory``, which ``..`` would leave. Whoever replaces one of the
    directories later changes nothing of what the descriptor shows. Raises OSError.
    """
    parts = path.parts if directory is not None else path.parts[1:]
    if ".." in parts:
        raise FileNotFoundError(errno.ENOENT, "must not have .. in its path", str(path))
    current = os.open("/", _ON_THE_WAY) if directory is None else os.dup(directory)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _ON_THE_WAY, dir_fd=current)
            os.close(current)
            current = inner
        return os.open(parts[-1] if parts else ".", _DIRECTORY, dir_fd=current)
    finally:
        os.close(current)


def read_small(root: Path, path: Path, limit: int = 1 << 20) -> bytes | None:
    """The whole of a small file, or None where there is none or it has more than ``limit`` bytes."""
    if (file := open_beneath(root, path)) is None:
        return None
    with file:
        data = file.read(limit + 1)
    return data if len(data) <= limit else None


def stat_beneath(root: Path, path: Path) -> os.stat_result | None:
    """Size and times of a regular file, or None where there is none."""
    if (file := open_beneath(root, path)) is None:
        return None
    with file:
        return os.fstat(file.fileno())


def read_text_from(path: Path, offset: int) -> str:
    """Text of a log from byte ``offset`` on, up to 16 MiB; empty where it cannot be read."""
    with suppress(OSError), open_regular(path) as file:
        file.seek(offset)
        return file.read(_MAX_TEXT).decode(errors="replace")
    return ""


def read_end(path: Path, limit: int = 64 << 10) -> str:
    """Text of the last ``limit`` bytes of a log; empty where it cannot be read."""
    return read_text_from(path, max(0, regular_size(path) - limit))


def file_version(path: Path) -> tuple[int, int, int] | None:
    """Value that differs after every change of the file at ``path``, which is not opened; None where there is none."""
    with suppress(OSError):
        status = path.lstat()
        return status.st_ino, status.st_mtime_ns, status.st_size
    return None


def regular_size(path: Path) -> int:
    """Bytes of a regular file; 0 for anything else, which must not be opened by its name (a FIFO would block)."""
    with suppress(OSError):
        status = path.lstat()
        return status.st_size if stat.S_ISREG(status.st_mode) else 0
    return 0


def list_numbers(directory: Path, limit: int = 1 << 63) -> list[int]:
    """Names in ``directory`` that are whole numbers below ``limit``, ascending; none where it is a link or missing.

    No more than 131,072 names are read, which no keeper and no rank makes.
    """
    with suppress(OSError):
        fd = os.open(directory, _DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                names = [entry.name for entry in islice(entries, _MAX_LISTED)]
        finally:
            os.close(fd)
        numbers = {int(name) for name in names if name.isascii() and name.isdecimal() and len(name) < 20}
        return sorted(number for number in numbers if number < limit)
    return []
