"""What a zip holds, entry by entry; its table of contents is looked at before it is read."""

import os
import stat
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rekindle_service.jobs.packaging.unpacking.archive_entry import (
    HEADER_BYTES,
    Entry,
    Kind,
    Limits,
    UnpackingError,
    too_many,
)

_ZIP_END, _ZIP64_LOCATOR = b"PK\x05\x06", b"PK\x06\x07"
_ZIP_END_BYTES, _ZIP64_LOCATOR_BYTES, _ZIP_ENTRY_BYTES = 22, 20, 46  # of such a record without its names
_ZIP_LONGEST_COMMENT = 1 << 16
_MADE_ON_UNIX = 3


def zip_entries(archive: Path, limits: Limits) -> Iterator[Entry]:
    _check_directory(archive, limits)
    with zipfile.ZipFile(archive) as zipped:
        for info in zipped.infolist():
            yield _zip_entry(zipped, info)


def _zip_entry(zipped: zipfile.ZipFile, info: zipfile.ZipInfo) -> Entry:
    mode = info.external_attr >> 16 if info.create_system == _MADE_ON_UNIX else 0
    if info.flag_bits & 1:
        raise UnpackingError("must not be encrypted", f"{info.filename[:200]!r} needs a password")
    if info.is_dir():
        kind = Kind.FOLDER
    elif stat.S_ISLNK(mode):
        kind = Kind.LINK
    else:
        kind = Kind.FILE if stat.S_IFMT(mode) in (0, stat.S_IFREG) else Kind.OTHER
    return Entry(
        name=info.filename,
        kind=kind,
        executable=bool(mode & stat.S_IXUSR),
        link=lambda: _link_text(zipped, info),
        open=lambda: zipped.open(info),
    )


def _link_text(zipped: zipfile.ZipFile, info: zipfile.ZipInfo) -> str:
    with zipped.open(info) as file:
        return os.fsdecode(file.read(HEADER_BYTES))


def _check_directory(archive: Path, limits: Limits) -> None:
    """zipfile reads the table of contents whole, until its bytes are used up: they are counted before, as it does."""
    with archive.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        window = file.seek(max(0, size - _ZIP_END_BYTES - _ZIP_LONGEST_COMMENT - _ZIP64_LOCATOR_BYTES))
        tail = file.read()
        end = _end_of_directory(tail)
        if end < 0 or len(tail) - end < _ZIP_END_BYTES:
            raise zipfile.BadZipFile("the end is missing")
        (directory,) = struct.unpack_from("<L", tail, end + 12)
        big = tail.startswith(_ZIP64_LOCATOR, max(0, end - _ZIP64_LOCATOR_BYTES))
        if big or directory > limits.entries * HEADER_BYTES:
            raise too_many(limits)
        if directory > window + end:
            raise zipfile.BadZipFile("the table of contents is longer than the file")
        file.seek(window + end - directory)
        _count_entries(file, directory, limits)


def _end_of_directory(tail: bytes) -> int:
    """Where zipfile finds the last record: at the very end if it looks like one, else wherever its mark comes last."""
    last = tail[-_ZIP_END_BYTES:]
    if last.startswith(_ZIP_END) and last.endswith(b"\0\0"):
        return len(tail) - len(last)
    return tail.rfind(_ZIP_END, max(0, len(tail) - _ZIP_END_BYTES - _ZIP_LONGEST_COMMENT))


def _count_entries(file: BinaryIO, directory: int, limits: Limits) -> None:
    count = 0
    while directory > 0:
        count += 1
        if count > limits.entries:
            raise too_many(limits)
        following = sum(struct.unpack_from("<3H", file.read(_ZIP_ENTRY_BYTES), 28))
        file.seek(following, os.SEEK_CUR)
        directory -= _ZIP_ENTRY_BYTES + following
