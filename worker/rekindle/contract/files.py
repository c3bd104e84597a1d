"""Files that appear whole or not at all, lines that survive a power cut, and parts of files that take no space."""

import ctypes
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from rekindle.contract.safe_open import open_beneath, open_regular

NO_SPACE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})
MAX_LINE = 16 << 20  # bytes of a line that are held in memory
_MAX_ENDLESS = 1 << 26  # bytes
HOLE_BLOCK = 1 << 16  # bytes; a multiple of the blocks of all common file systems
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of linux/falloc.h
_PROBE = bytes(4096)  # less space than this, and no status, marker or journal record fits


def why_unwritable(error: OSError, path: Path | str) -> str | None:
    """Why ``path`` cannot be written, as a clause; None for a full disk, which is no error: space may come."""
    return None if error.errno in NO_SPACE_ERRNOS else f"it cannot write {path}: {error.strerror}"


def last_line_of(text: str) -> str:
    """The last line of a log that shows anything, without spaces around it; "" where there is none."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def fsync_directory(directory: Path) -> None:
    """Make renames and new names in ``directory`` durable: without it a renamed file is gone after a power cut."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file_system(directory: Path) -> None:
    """Make all that was written on the file system of ``directory`` durable, as an fsync of each file would.

    For many files, since it waits for those of others, too. Raises OSError.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(directory))
    finally:
        os.close(fd)


def atomic_write(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace ``path`` by ``data`` in one step: a reader sees the old bytes or the new ones, never a part.

    ``durable=False`` leaves out both fsyncs: right for what is rewritten every second and means nothing after a
    crash (a rank's status), wrong for everything else. Only one writer per path is allowed. The temporary file is
    always a new one: a job that can write into the directory may have put a link or a FIFO in its place.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            _own_like(path.parent, fd)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):  # the first error is the one that counts
            temporary.unlink()
        raise
    if durable:
        fsync_directory(path.parent)


def _own_like(directory: Path, fd: int) -> None:
    """Give the file to the user of ``directory`` where root writes it: the job there runs as that user."""
    if os.geteuid() == 0 and (owner := directory.stat()).st_uid != 0:
        os.fchown(fd, owner.st_uid, owner.st_gid)


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Replace ``path`` by one JSON document, as ``atomic_write`` does."""
    atomic_write(path, json.dumps(value, allow_nan=False).encode() + b"\n", durable=durable)


def read_json(path: Path, *, root: Path | None = None, max_bytes: int = 16 << 20) -> Any | None:
    """The JSON document at ``path``, or None where there is none (yet), it is not JSON, or it is longer.

    ``root``: the directory below which no link is followed; without one, only ``path`` itself may be no link.
    """
    try:
        file = open_regular(path) if root is None else open_beneath(root, path)
        if file is None:
            return None
        with file:
            return json.loads(file.read(max_bytes))
    except (FileNotFoundError, PermissionError, ValueError, RecursionError):
        return None


def append_line(path: Path, value: Any, *, durable: bool = True) -> None:
    """Append one JSON line, as ``append_lines`` does."""
    append_lines(path, [value], durable=durable)


def append_lines(path: Path, values: Iterable[Any], *, durable: bool = True) -> None:
    """Append JSON lines and fsync them. A torn last line left by a crash is first ended, so it cannot swallow ours.

    ``durable=False`` leaves out the fsync: right for what means nothing after a crash. Raises OSError, naming the file,
    where the lines did not fit whole (a full disk).
    """
    created = not path.exists()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        lines = "".join(json.dumps(value, allow_nan=False) + "\n" for value in values).encode()
        content = b"\n" * torn + lines
        if os.write(fd, content) != len(content):
            raise OSError(errno.ENOSPC, "only a part of the lines was written")
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
    """Read the JSON lines of the file at ``path``, as ``json_lines`` does; none where there is no regular file."""
    with suppress(FileNotFoundError), open_regular(path) as file:
        yield from json_lines(file, offset)


def json_lines(
    file: BinaryIO, offset: int = 0, *, max_line: int = MAX_LINE, end: int | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every complete JSON object line from byte ``offset`` on, each with the offset just after it.

    A last line without its newline is not complete yet. A complete line that is not a JSON object was torn by a crash,
    and one of more than ``max_line`` bytes is never held in memory: both are skipped. ``end``: see ``complete_lines``.
    """
    for after, line in complete_lines(file, offset, max_line=max_line, end=end):
        value = parse_json(line)
        if isinstance(value, dict):
            yield after, value


def complete_lines(
    file: BinaryIO, offset: int = 0, *, max_line: int = MAX_LINE, end: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Every line from byte ``offset`` on with the offset just after it.

    Of a line of more than ``max_line`` bytes each part comes as an empty line. Nothing that begins at ``end`` or later
    is read, nor anything after more than 64 MiB without the end of a line, such as the hole of a sparse file.
    """
    file.seek(offset)
    too_long = 0  # bytes of the line so far
    while (end is None or offset < end) and too_long <= _MAX_ENDLESS and (line := file.readline(max_line)):
        offset += len(line)
        whole = line.endswith(b"\n")
        if not whole and len(line) < max_line:
            return
        yield offset, line if whole and not too_long else b""
        too_long = 0 if whole else too_long + len(line)


def parse_json(text: bytes) -> Any | None:
    """Parse ``text``; None for what is no JSON, or is nested too deeply for the parser."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def check_free_space(directory: Path) -> None:
    """Write a small file into ``directory`` and remove it. Raises OSError, naming ``directory``, where that fails."""
    probe = directory / ".space-probe"
    try:
        atomic_write(probe, _PROBE, durable=False)
        probe.unlink()
    except OSError as error:
        error.filename = str(directory)
        raise


def has_free_space(directory: Path) -> bool:
    """True where a small file can be written into ``directory``."""
    with suppress(OSError):
        check_free_space(directory)
        return True
    return False


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
        file.write(bytes(2 * HOLE_BLOCK))
        file.flush()
        try:
            punch_hole(file.fileno(), 0, HOLE_BLOCK)
        except OSError:
            return False
    return True


def source_digest(package: Path) -> str:
    """Hash of the names and contents of a package's files, apart from compiled ones.

    The worker side is a directory on the path of jobs, and has no other version.
    """
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.is_file() and path.parent.name != "__pycache__":
            digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
