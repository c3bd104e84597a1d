"""Unpacking: files and folders first, links last, everything counted on the way."""

import gzip
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from rekindle.contract.files import fsync_directory
from rekindle_service.jobs.packaging.unpacking.archive_entry import (
    CHUNK,
    Entry,
    Kind,
    Limits,
    UnpackingError,
    too_big,
    too_many,
)
from rekindle_service.jobs.packaging.unpacking.tar_entries import tar_entries
from rekindle_service.jobs.packaging.unpacking.zip_entries import zip_entries

_GZIP_MAGIC, _ZIP_MAGIC = b"\x1f\x8b", b"PK"
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    struct.error,
    UnicodeError,
    NotImplementedError,
    ValueError,
)


def unpack(archive: Path, target: Path, limits: Limits) -> None:
    """Unpack a tar.gz or zip into the new folder ``target``, durably.

    Sizes are counted while unpacking: what an archive says of itself is no limit. Links are made last, so that no file
    is written through one, and one that leaves ``target`` is refused. Owners, times and all modes but "executable"
    are dropped. Raises UnpackingError, and OSError of the writing itself; ``target`` is the caller's to remove then.
    """
    target.mkdir(mode=0o700)
    try:
        _make_links(_write_all(_entries(archive, limits), target, limits), target)
    except _DAMAGED as error:
        hint = f"it is damaged or was cut off ({error or type(error).__name__}); pack and upload it again"
        raise UnpackingError("must be a whole tar.gz or zip", hint) from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        where = Path(str(error.filename)).relative_to(target)
        raise UnpackingError("must hold every name once", f"{where} is there twice, or as file and folder") from error
    if next(target.iterdir(), None) is None:
        raise UnpackingError("must hold a file", "the archive is empty")
    for folder, _, _ in os.walk(target, topdown=False):
        fsync_directory(Path(folder))


def _entries(archive: Path, limits: Limits) -> Iterator[Entry]:
    """By what the file is, not by what it is called."""
    with archive.open("rb") as file:
        magic = file.read(2)
    if magic == _GZIP_MAGIC:
        return tar_entries(archive, limits)
    if magic == _ZIP_MAGIC:
        return zip_entries(archive, limits)
    raise UnpackingError("must be a tar.gz or zip", "it begins like neither: pack it with `tar czf` or `zip -r`")


def _write_all(entries: Iterator[Entry], target: Path, limits: Limits) -> dict[PurePosixPath, str]:
    """Files and folders; gives back the links, which are for later."""
    links: dict[PurePosixPath, str] = {}
    left = limits.bytes
    for count, entry in enumerate(entries, start=1):
        if count > limits.entries:
            raise too_many(limits)
        path = inner_path(entry.name)
        match entry.kind:
            case Kind.OTHER:
                hint = f"{path} is a device, FIFO or hard link (tar --hard-dereference stores files instead)"
                raise UnpackingError("must hold files, folders and links alone", hint)
            case Kind.LINK:
                links[path] = entry.link()
            case Kind.FOLDER:
                (target / path).mkdir(mode=0o700, parents=True, exist_ok=True)
            case Kind.FILE:
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


def _write_file(entry: Entry, path: Path, most: int, limits: Limits) -> int:
    """Its size in bytes. A file that grows beyond ``most`` is not written any further."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    size = 0
    with entry.open() as reader, path.open("xb") as writer:
        while chunk := reader.read(CHUNK):
            size += len(chunk)
            if size > most:
                raise too_big(limits)
            writer.write(chunk)
        os.fchmod(writer.fileno(), 0o700 if entry.executable else 0o600)
        writer.flush()
        os.fsync(writer.fileno())
    return size


def _make_links(links: dict[PurePosixPath, str], target: Path) -> None:
    root = Path(os.path.realpath(target))
    for path, text in links.items():
        if PurePosixPath(text).is_absolute():
            raise _leads_out(path, text)
    for path, text in links.items():
        if not Path(os.path.realpath((target / path).parent)).is_relative_to(root):  # before a folder is made there
            raise UnpackingError("must not link out of itself", f"{path} lies behind a link")
        (target / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not text or "\0" in text or os.path.lexists(target / path):
            raise UnpackingError("must hold every name once", f"{path} is a link and something else")
        (target / path).symlink_to(text)
    for path, text in links.items():  # only now: a link may lead over another one
        if not Path(os.path.realpath(target / path)).is_relative_to(root):
            raise _leads_out(path, text)


def _leads_out(path: PurePosixPath, text: str) -> UnpackingError:
    return UnpackingError("must not link out of itself", f"{path} points to {text[:200]}")
