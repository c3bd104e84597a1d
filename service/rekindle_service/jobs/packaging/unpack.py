"""Archives of code from anybody: unpacked by a child process with limits on its memory, time and file sizes.

tarfile and zipfile trust what an archive claims (the length of a name, the number of entries), so a child does the
reading: what exceeds a limit ends the child, not the server. Paths and links are checked here, not by tarfile's own
filter: Debian 12's Python 3.11.2 has no filter, and zip files need the same checks.
"""

import errno
import gzip
import json
import lzma
import os
import resource
import stat
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, NoReturn

from rekindle.contract.files import fsync_directory
from rekindle_service.jobs.packaging.code_copy import CodeError

_CHUNK = 1 << 20  # bytes
_MEMORY = 1 << 30  # bytes of address space of the child
_TIMEOUT = 300  # seconds of wall time for the child: a slow disk must write and sync everything in it
_REFUSED = 3  # exit code of a child that has printed why
_GZIP_MAGIC, _ZIP_MAGIC = b"\x1f\x8b", b"PK"
_MADE_ON_UNIX = 3
_DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError),
    *(EOFError, struct.error, UnicodeError, NotImplementedError, ValueError, RecursionError),
)

Entry = tuple[tarfile.TarInfo, Callable[[], IO[bytes] | None]]
"""What an entry is, and how to open its content. Entries of a zip are described in the same way."""


class UnpackingError(CodeError):
    """The archive cannot be accepted."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an archive may become, and how much processor time it may take."""

    bytes: int
    entries: int
    cpu_seconds: int = 60


def unpack(archive: Path, target: Path, limits: Limits) -> None:
    """Unpack a tar.gz or zip into the new directory ``target``, durably.

    Sizes are counted while unpacking, whatever the archive claims. Links are made last, so that no file is written
    through one, and a link that leaves ``target`` is rejected. Owners, times and all modes but "executable" are
    dropped. Raises UnpackingError, and OSError of the writing; ``target`` is the caller's to remove then.
    """
    command = [sys.executable, "-P", "-m", __name__, str(archive), str(target), *map(str, astuple(limits))]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise _too_costly(f"{_TIMEOUT} seconds") from error
    if done.returncode == _REFUSED:
        reason = json.loads(done.stdout)
        if "errno" in reason:
            raise OSError(reason["errno"], os.strerror(reason["errno"]), str(target))
        raise UnpackingError(reason["rule"], reason["hint"])
    if done.returncode != 0:
        raise _too_costly(f"{limits.cpu_seconds} seconds of processor time or {_MEMORY >> 20} MB of memory")


def main() -> None:
    """The child: prints why it refuses, as JSON."""
    archive, target, most_bytes, entries, cpu_seconds = sys.argv[1:]
    limits = Limits(int(most_bytes), int(entries), int(cpu_seconds))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        extract(Path(archive), Path(target), limits)
    except UnpackingError as error:
        _refuse({"rule": error.rule, "hint": error.hint})
    except OSError as error:
        _refuse({"errno": error.errno or errno.EIO})


def _refuse(reason: dict[str, object]) -> NoReturn:
    sys.stdout.write(json.dumps(reason))
    sys.exit(_REFUSED)


def extract(archive: Path, target: Path, limits: Limits) -> None:
    """Do what ``unpack`` does in this process, without its limits on memory and time."""
    target.mkdir(mode=0o700)
    try:
        _make_links(_write_all(_entries(archive), target, limits), target)
    except _DAMAGED as error:
        hint = f"it is damaged or was cut off ({str(error)[:200] or type(error).__name__}); pack and upload it again"
        raise UnpackingError("must be a whole tar.gz or zip", hint) from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        name = Path(str(error.filename)).relative_to(target)
        raise UnpackingError("must hold every name once", f"{name} is there twice, or as file and directory") from error
    if next(target.iterdir(), None) is None:
        raise UnpackingError("must hold a file", "the archive is empty")
    for directory, _, _ in os.walk(target, topdown=False):
        fsync_directory(Path(directory))


def _entries(archive: Path) -> Iterator[Entry]:
    """The format is recognised by the content, not by the name."""
    with archive.open("rb") as file:
        magic = file.read(2)
    if magic == _GZIP_MAGIC:
        return _tar_entries(archive)
    if magic == _ZIP_MAGIC:
        return _zip_entries(archive)
    raise UnpackingError("must be a tar.gz or zip", "it begins like neither: pack it with `tar czf` or `zip -r`")


def _tar_entries(archive: Path) -> Iterator[Entry]:
    with gzip.open(archive) as plain:
        with tarfile.open(fileobj=plain, mode="r|") as tar:
            for member in tar:
                yield member, lambda member=member: tar.extractfile(member)  # type: ignore[misc]
        while plain.read(_CHUNK):  # to the end, which holds gzip's checksum
            pass


def _zip_entries(archive: Path) -> Iterator[Entry]:
    with zipfile.ZipFile(archive) as zipped:
        for info in zipped.infolist():
            if info.header_offset < 0:
                raise zipfile.BadZipFile(f"{info.filename[:200]!r} would be before the beginning of the file")
            if info.flag_bits & 1:
                raise UnpackingError("must not be encrypted", f"{info.filename[:200]!r} needs a password")
            yield _as_member(zipped, info), lambda info=info: zipped.open(info)  # type: ignore[misc]


def _as_member(zipped: zipfile.ZipFile, info: zipfile.ZipInfo) -> tarfile.TarInfo:
    mode = info.external_attr >> 16 if info.create_system == _MADE_ON_UNIX else 0
    member = tarfile.TarInfo(info.filename)
    member.mode = mode
    if info.is_dir():
        member.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(mode):
        member.type = tarfile.SYMTYPE
        with zipped.open(info) as file:
            member.linkname = os.fsdecode(file.read(_CHUNK))
    elif stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        member.type = tarfile.CHRTYPE
    return member


def _write_all(entries: Iterator[Entry], target: Path, limits: Limits) -> dict[PurePosixPath, str]:
    """Write files and directories; return the links, which come last."""
    links: dict[PurePosixPath, str] = {}
    left = limits.bytes
    for count, (member, content) in enumerate(entries, start=1):
        if count > limits.entries:
            raise UnpackingError(f"at most {limits.entries} entries", "keep data outside the archive")
        path = inner_path(member.name)
        if member.issym():
            links[path] = member.linkname
        elif member.isdir():
            (target / path).mkdir(mode=0o700, parents=True, exist_ok=True)
        elif member.isreg() and not member.issparse() and (reader := content()) is not None:
            left -= _write_file(reader, target / path, left, limits, executable=bool(member.mode & stat.S_IXUSR))
        else:
            hint = f"{path} is something else (tar --hard-dereference and no --sparse store whole files)"
            raise UnpackingError("must hold files, directories and links alone", hint)
    return links


def inner_path(name: str) -> PurePosixPath:
    """The name of an entry as a path below the target. Raises UnpackingError for any other."""
    path = PurePosixPath(name)
    if "\0" in name or path.is_absolute() or ".." in path.parts:
        raise UnpackingError("must hold relative names without ..", f"{name[:200]!r} is none")
    if len(os.fsencode(name)) > 1024 or any(len(os.fsencode(part)) > 255 for part in path.parts):
        raise UnpackingError("must hold names of at most 255 bytes, 1024 with their directories", repr(name[:200]))
    return path


def _write_file(content: IO[bytes], path: Path, most: int, limits: Limits, *, executable: bool) -> int:
    """Its size in bytes. A file that grows beyond ``most`` is not written any further."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    size = 0
    with content as reader, path.open("xb") as writer:
        while chunk := reader.read(_CHUNK):
            size += len(chunk)
            if size > most:
                hint = "keep data outside the archive and give the script its path"
                raise UnpackingError(f"at most {limits.bytes // 1_000_000} MB when unpacked", hint)
            writer.write(chunk)
        os.fchmod(writer.fileno(), 0o700 if executable else 0o600)
        writer.flush()
        os.fsync(writer.fileno())
    return size


def _make_links(links: dict[PurePosixPath, str], target: Path) -> None:
    """All of them or none: one that is rejected must not lead anybody out of ``target`` before that is removed."""
    made: list[Path] = []
    try:
        for path, text in links.items():
            _make_link(path, text, target)
            made.append(target / path)
        for path, text in links.items():  # only now: a link may lead over another one
            if not Path(os.path.realpath(target / path)).is_relative_to(os.path.realpath(target)):
                raise _leaves(path, text)
    except (UnpackingError, OSError):
        for link in reversed(made):
            link.unlink()
        raise


def _make_link(path: PurePosixPath, text: str, target: Path) -> None:
    if PurePosixPath(text).is_absolute():
        raise _leaves(path, text)
    parent = (target / path).parent
    if not Path(os.path.realpath(parent)).is_relative_to(os.path.realpath(target)):  # before a directory is made there
        raise UnpackingError("must not link out of itself", f"{path} is inside a link")
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not text or "\0" in text or os.path.lexists(target / path):
        raise UnpackingError("must hold every name once", f"{path} is a link and something else")
    (target / path).symlink_to(text)


def _leaves(path: PurePosixPath, text: str) -> UnpackingError:
    return UnpackingError("must not link out of itself", f"{path} points to {text[:200]}")


def _too_costly(limit: str) -> UnpackingError:
    return UnpackingError("must be an archive of code", f"unpacking takes more than {limit}: pack it with `tar czf`")


if __name__ == "__main__":
    main()
