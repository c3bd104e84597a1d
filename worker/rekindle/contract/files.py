"""Files that appear whole or not at all, and lines that survive a power cut."""

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

_LONGEST_DOCUMENT = 16 << 20  # bytes


def fsync_directory(folder: Path) -> None:
    """Make renames and new names in ``folder`` durable: without it a renamed file is gone after a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def atomic_write(path: Path, data: bytes, *, durable: bool = True, mode: int = 0o600) -> None:
    """Replace ``path`` by ``data`` in one step: a reader sees the old bytes or the new ones, never a part.

    ``durable=False`` leaves out both fsyncs: right for what is rewritten every second and means nothing after a
    crash (a rank's status), wrong for everything else. Only one writer per path is allowed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        fsync_directory(path.parent)


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """``atomic_write`` for one JSON document."""
    atomic_write(path, json.dumps(value, allow_nan=False).encode() + b"\n", durable=durable)


def open_regular(path: Path) -> BinaryIO:
    """Open for reading what must be a regular file: a job can plant a link or a FIFO where it may write.

    Raises FileNotFoundError where there is no such file.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise FileNotFoundError(error.errno, "not a regular file", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "not a regular file", str(path))
    return os.fdopen(fd, "rb")


def read_json(path: Path) -> Any | None:
    """The JSON document at ``path``, or None where there is none (yet), it is not JSON, or it is absurdly long."""
    try:
        with open_regular(path) as file:
            return json.loads(file.read(_LONGEST_DOCUMENT))
    except (FileNotFoundError, PermissionError, ValueError, RecursionError):
        return None


def append_line(path: Path, value: Any, *, durable: bool = True) -> None:
    """Append one JSON line and fsync it. A torn last line left by a crash is first ended, so it cannot swallow ours.

    ``durable=False`` leaves out the fsync: right for what means nothing after a crash. Raises OSError, naming the file,
    where the line did not fit whole (a full disk).
    """
    created = not path.exists()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        line = (b"\n" if torn else b"") + json.dumps(value, allow_nan=False).encode() + b"\n"
        if os.write(fd, line) != len(line):
            raise OSError(errno.ENOSPC, "only a part of the line was written")
        if durable:
            os.fsync(fd)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(fd)
    if created and durable:
        fsync_directory(path.parent)


def read_lines(path: Path, offset: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every complete JSON object line from byte ``offset`` on, each with the offset just behind it.

    A line without its newline is not there yet; a complete line that is not a JSON object was torn by a crash and
    is passed over: nothing is invented from it.
    """
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return
    with file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield offset, value
