"""What a tar.gz holds, entry by entry; refused where reading it would take for ever or fill the memory."""

import gzip
import io
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Self, cast

from rekindle_service.jobs.packaging.unpacking.archive_entry import (
    CHUNK,
    HEADER_BYTES,
    Entry,
    Kind,
    Limits,
    UnpackingError,
    too_big,
)

_MOST_GLOBALS = 100  # keywords that a tar sets for all entries behind them; `git archive` sets one
_MOST_HEADERS = 8  # of one entry of a tar: its own, its long names, what is set for all
_ABOUT_OTHERS = frozenset(  # entries that describe the entries behind them
    {
        *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
        *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    }
)


class _Bounded(io.RawIOBase):
    """A stream that ends with an error instead of filling memory or disk: also long names are read whole."""

    def __init__(self, stream: gzip.GzipFile, limits: Limits) -> None:
        super().__init__()
        self._stream = stream
        self._left = limits.bytes + limits.entries * HEADER_BYTES
        self._limits = limits

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        size: int = self._stream.readinto(buffer)
        self._left -= size
        if self._left < 0:
            raise too_big(self._limits)
        return size


class _Header(tarfile.TarInfo):
    """Refuses what is no code and what would take tarfile for ever, before it is read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.type in _ABOUT_OTHERS and header.size > HEADER_BYTES:
            hint = f"an entry describes itself in {header.size} bytes; leave out extended attributes (tar --no-xattrs)"
            raise UnpackingError(f"must hold names of at most {HEADER_BYTES} bytes", hint)
        if header.type == tarfile.GNUTYPE_SPARSE:
            raise _sparse(header)
        return header

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        """Calls itself for each header of the same entry."""
        tar = cast("_Tar", tarfile)
        tar.headers += 1
        if tar.headers > _MOST_HEADERS or len(tar.pax_headers) > _MOST_GLOBALS:
            raise UnpackingError("must describe each entry once", "pack it with `tar czf`")
        try:
            return super().fromtarfile(tar)
        finally:
            tar.headers -= 1

    def _proc_gnusparse_10(self, member: tarfile.TarInfo, *_: object) -> None:
        """tarfile's own, for which there is no public way; it takes the square of the map's length."""
        raise _sparse(member)


class _Tar(tarfile.TarFile):
    tarinfo = _Header
    headers = 0  # of the entry that is being read


def _sparse(member: tarfile.TarInfo) -> UnpackingError:
    return UnpackingError("must hold whole files", f"{member.name[:200]} is stored with holes: pack without --sparse")


def tar_entries(archive: Path, limits: Limits) -> Iterator[Entry]:
    with gzip.open(archive) as plain, io.BufferedReader(_Bounded(plain, limits)) as bounded:
        with _Tar.open(fileobj=bounded, mode="r|") as tar:
            for member in tar:
                yield _tar_entry(tar, member)
        while bounded.read(CHUNK):  # to the end, where gzip's checksum is
            pass


def _tar_entry(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    if member.isreg():
        kind = Kind.FILE
    elif member.isdir():
        kind = Kind.FOLDER
    else:
        kind = Kind.LINK if member.issym() else Kind.OTHER
    return Entry(
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
