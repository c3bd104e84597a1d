"""Many files as one zip archive that is made while it is sent: memory stays flat, whatever their size."""

import errno
import os
import time
import zipfile
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.safe_open import open_beneath
from rekindle_service.run_readers.log_files import Span, iter_bytes, size_of, total_size, without_holes

_FIRST_TIME, _LAST_TIME = 315_532_800, 4_354_819_198  # 1980 to 2107, the dates of the format


@dataclass(frozen=True, slots=True)
class Member:
    """A file by its name in the archive. ``path`` is beneath the archive's ``root`` and may be absent."""

    name: str
    path: Path


def zip_stream(root: Path, members: Iterable[Member], *, compress: bool, complete: bool = False) -> Iterator[bytes]:
    """The bytes of the archive. Each file has the length that it has when its turn comes; an absent one is omitted.

    Nothing but regular files without a link on the way is packed, see ``open_beneath``. ``complete``: raises
    FileNotFoundError for an absent file, and for one that becomes shorter.
    """
    sink = _Sink()
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(sink, "w", method, compresslevel=1) as archive:  # type: ignore[call-overload]  # needs no more than write and flush
        for member in members:
            packed = yield from _pack(archive, sink, root, member, method, keep_holes=complete)
            if complete and not packed:
                raise FileNotFoundError(errno.ENOENT, "removed or changed", member.name)
    yield sink.take()


def _pack(
    archive: zipfile.ZipFile, sink: "_Sink", root: Path, member: Member, method: int, *, keep_holes: bool
) -> Generator[bytes, None, bool]:
    """Returns whether the whole file was packed."""
    if (file := open_beneath(root, member.path)) is None:
        return False
    with file:
        entry = zipfile.ZipInfo(member.name, _time_of(os.fstat(file.fileno()).st_mtime))
        parts = [Span(0, size_of(file))] if keep_holes else list(without_holes(file))
        packed_bytes = 0
        entry.compress_type, entry.file_size = method, total_size(parts)
        with archive.open(entry, "w") as packed:
            for block in iter_bytes(file, parts):
                packed_bytes += len(block)
                packed.write(block)
                yield sink.take()
    yield sink.take()
    return packed_bytes == entry.file_size


def _time_of(seconds: float) -> tuple[int, int, int, int, int, int]:
    """A job may have set any time."""
    year, month, day, hour, minute, second, *_ = time.gmtime(min(max(seconds, _FIRST_TIME), _LAST_TIME))
    return year, month, day, hour, minute, second


class _Sink:
    """Where the archive is written to; keeps bytes only until they are taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """``take`` returns everything."""

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken
