"""Archives of code from anybody, unpacked so that nothing lands outside the folder and nothing fills the disk."""

import gzip
import io
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path, PurePosixPath
from typing import IO, Any

from rekindle.contract.durable import fsync_folder

GZIP_MAGIC, ZIP_MAGIC = b"\x1f\x8b", b"PK"

_CHUNK = 1 << 20
_HEADER_BYTES = 4096  # of one entry of an archive, long names included
_ZIP_END, _ZIP64_LOCATOR = b"PK\x05\x06", b"PK\x06\x07"
_ZIP_END_SEARCH = 22 + (1 << 16)  # bytes at the end of a zip in which its last record begins
_MADE_ON_UNIX = 3
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    UnicodeError,
    NotImplementedError,
    ValueError,
)


class UnpackingError(Exception):
    """The archive cannot be taken as it is; ``rule`` and ``hint`` say why and what helps."""

    def __init__(self, rule: str, hint: str) -> None:
        super().__init__(f"{rule}; {hint}")
        self.rule = rule
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Limits:
    """What an archive may become."""

    bytes: int
    entries: int


class _Kind(Enum):
    FILE = auto()
    FOLDER = auto()
    LINK = auto()
    OTHER = auto()  # devices, FIFOs, hard links: nothing that code consists of


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    kind: _Kind
    executable: bool
    link: Callable[[], str]
    open: Callable[[], IO[bytes]]


def unpack(archive: Path, target: Path, limits: Limits) -> None:
    """Unpack a tar.gz or zip into the new folder ``target``, durably.

    Sizes are counted while unpacking: what an archive says of itself is no limit. Links are made last, so that no file
    is written through one, and one that leaves ``target`` is refused. Owners, times and all modes but "executable"
    are dropped. Raises UnpackingError, and OSError of the writing itself; ``target`` is the caller's to remove then.
    """
    target.mkdir(mode=0o700)
    try:
        links = _write_all(_entries(archive, limits), target, limits)
    except _DAMAGED as error:
        hint = f"it is damaged or was cut off ({error or type(error).__name__}); pack and upload it again"
        raise UnpackingError("must be a whole tar.gz or zip", hint) from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        where = Path(str(error.filename)).relative_to(target)
        raise UnpackingError("must hold every name once", f"{where} is there twice, or as file and folder") from error
    _make_links(links, target)
    if next(target.iterdir(), None) is None:
        raise UnpackingError("must hold a file", "the archive is empty")
    for folder, _, _ in os.walk(target, topdown=False):
        fsync_folder(Path(folder))


def _entries(archive: Path, limits: Limits) -> Iterator[_Entry]:
    """By what the file is, not by what it is called."""
    with archive.open("rb") as file:
        magic = file.read(2)
    if magic == GZIP_MAGIC:
        return _tar_entries(archive, limits)
    if magic == ZIP_MAGIC:
        return _zip_entries(archive, limits)
    raise UnpackingError("must be a tar.gz or zip", "it begins like neither: pack it with `tar czf` or `zip -r`")


def _write_all(entries: Iterator[_Entry], target: Path, limits: Limits) -> dict[PurePosixPath, str]:
    """Files and folders; gives back the links, which are for later."""
    links: dict[PurePosixPath, str] = {}
    left = limits.bytes
    for count, entry in enumerate(entries, start=1):
        if count > limits.entries:
            raise UnpackingError(f"at most {limits.entries} entries", "keep data outside the archive")
        path = inner_path(entry.name)
        match entry.kind:
            case _Kind.OTHER:
                hint = f"{path} is a device, FIFO or hard link (tar --hard-dereference stores files instead)"
                raise UnpackingError("must hold files, folders and links alone", hint)
            case _Kind.LINK:
                links[path] = entry.link()
            case _Kind.FOLDER:
                (target / path).mkdir(mode=0o700, parents=True, exist_ok=True)
            case _Kind.FILE:
                left -= _write_file(entry, target / path, left, limits)
    return links


def inner_path(name: str) -> PurePosixPath:
    """The name of an entry as a path below the folder it is unpacked in. Raises UnpackingError for any other."""
    path = PurePosixPath(name)
    if "\0" in name or path.is_absolute() or ".." in path.parts:
        raise UnpackingError("must hold relative names without ..", f"{name[:200]!r} is none")
    if len(os.fsencode(name)) > 1024 or any(len(os.fsencode(part)) > 255 for part in path.parts):
        raise UnpackingError("must hold names of at most 255 bytes, 1024 with their folders", repr(name[:200]))
    return path


def _write_file(entry: _Entry, path: Path, most: int, limits: Limits) -> int:
    """Its size in bytes. A file that grows beyond ``most`` is not written any further."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    size = 0
    with entry.open() as reader, path.open("xb") as writer:
        while chunk := reader.read(_CHUNK):
            size += len(chunk)
            if size > most:
                raise _too_big(limits)
            writer.write(chunk)
        os.fchmod(writer.fileno(), 0o700 if entry.executable else 0o600)
        writer.flush()
        os.fsync(writer.fileno())
    return size


def _too_big(limits: Limits) -> UnpackingError:
    hint = "keep data outside the archive and give the script its path"
    return UnpackingError(f"at most {limits.bytes // 1_000_000} MB when unpacked", hint)


def _make_links(links: dict[PurePosixPath, str], target: Path) -> None:
    root = Path(os.path.realpath(target))
    for path, text in links.items():
        (target / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not text or "\0" in text or os.path.lexists(target / path):
            raise UnpackingError("must hold every name once", f"{path} is a link and something else")
        (target / path).symlink_to(text)
        if not Path(os.path.realpath((target / path).parent)).is_relative_to(root):
            raise UnpackingError("must not link out of itself", f"{path} lies behind a link")
    for path in links:  # only now: a link may lead over another one
        if PurePosixPath(links[path]).is_absolute() or not Path(os.path.realpath(target / path)).is_relative_to(root):
            raise UnpackingError("must not link out of itself", f"{path} points to {links[path][:200]}")


# --- tar.gz


class _Bounded(io.RawIOBase):
    """A stream that ends with an error instead of filling memory or disk: also long names are read whole."""

    def __init__(self, stream: gzip.GzipFile, limits: Limits) -> None:
        super().__init__()
        self._stream = stream
        self._left = limits.bytes + limits.entries * _HEADER_BYTES
        self._limits = limits

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        size: int = self._stream.readinto(buffer)
        self._left -= size
        if self._left < 0:
            raise _too_big(self._limits)
        return size


def _tar_entries(archive: Path, limits: Limits) -> Iterator[_Entry]:
    with gzip.open(archive) as plain, io.BufferedReader(_Bounded(plain, limits)) as bounded:
        with tarfile.open(fileobj=bounded, mode="r|") as tar:
            for member in tar:
                yield _tar_entry(tar, member)
        while bounded.read(_CHUNK):  # to the end, where gzip's checksum is
            pass


def _tar_entry(tar: tarfile.TarFile, member: tarfile.TarInfo) -> _Entry:
    if member.isreg():
        kind = _Kind.FILE
    elif member.isdir():
        kind = _Kind.FOLDER
    else:
        kind = _Kind.LINK if member.issym() else _Kind.OTHER
    return _Entry(
        name=member.name,
        kind=kind,
        executable=bool(member.mode & stat.S_IXUSR),
        link=lambda: member.linkname,
        open=lambda: _opened(tar.extractfile(member)),
    )


def _opened(file: IO[bytes] | None) -> IO[bytes]:
    if file is None:
        raise tarfile.ReadError("an entry without content")
    return file


# --- zip


def _zip_entries(archive: Path, limits: Limits) -> Iterator[_Entry]:
    _check_directory(archive, limits)
    with zipfile.ZipFile(archive) as zipped:
        for info in zipped.infolist():
            yield _zip_entry(zipped, info)


def _zip_entry(zipped: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Entry:
    mode = info.external_attr >> 16 if info.create_system == _MADE_ON_UNIX else 0
    if info.flag_bits & 1:
        raise UnpackingError("must not be encrypted", f"{info.filename[:200]!r} needs a password")
    if info.is_dir():
        kind = _Kind.FOLDER
    elif stat.S_ISLNK(mode):
        kind = _Kind.LINK
    else:
        kind = _Kind.FILE if stat.S_IFMT(mode) in (0, stat.S_IFREG) else _Kind.OTHER
    return _Entry(
        name=info.filename,
        kind=kind,
        executable=bool(mode & stat.S_IXUSR),
        link=lambda: _link_text(zipped, info),
        open=lambda: zipped.open(info),
    )


def _link_text(zipped: zipfile.ZipFile, info: zipfile.ZipInfo) -> str:
    with zipped.open(info) as file:
        return os.fsdecode(file.read(_HEADER_BYTES))


def _check_directory(archive: Path, limits: Limits) -> None:
    """The table of contents is read into memory whole: its size is looked at before."""
    with archive.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _ZIP_END_SEARCH))
        tail = file.read()
    end = tail.rfind(_ZIP_END)
    if end < 0:
        raise zipfile.BadZipFile("the end is missing")
    directory = int.from_bytes(tail[end + 12 : end + 16], "little")
    if directory > limits.entries * _HEADER_BYTES or _ZIP64_LOCATOR in tail:
        raise UnpackingError(f"at most {limits.entries} entries", "keep data outside the archive")
