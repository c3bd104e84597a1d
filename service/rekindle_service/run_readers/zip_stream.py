"""Many files as one zip archive that is made while it is sent: memory stays flat, whatever their size."""

import os
import time
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.safe_open import open_beneath
from rekindle_service.run_readers.log_spans import total_size, without_holes
from rekindle_service.run_readers.logs import iter_bytes

_EARLIEST = (1980, 1, 1, 0, 0, 0)  # date of the format


@dataclass(frozen=True, slots=True)
class Member:
    """A file by its name in the archive. ``path`` is beneath the archive's ``root`` and may be absent."""

    name: str
    path: Path


def zip_stream(root: Path, members: Iterable[Member], *, compress: bool) -> Iterator[bytes]:
    """The bytes of the archive. Each file has the length that it has when its turn comes; an absent one is omitted.

    Nothing but regular files without a link on the way is packed, see ``open_beneath``.
    """
    sink = _Sink()
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(sink, "w", method, compresslevel=1) as archive:  # type: ignore[call-overload]  # needs no more than write and flush
        for member in members:
            yield from _pack(archive, sink, root, member, method)
    yield sink.take()


def _pack(archive: zipfile.ZipFile, sink: "_Sink", root: Path, member: Member, method: int) -> Iterator[bytes]:
    if (file := open_beneath(root, member.path)) is None:
        return
    with file:
        entry = zipfile.ZipInfo(member.name, _time_of(os.fstat(file.fileno()).st_mtime))
        parts = list(without_holes(file))
        entry.compress_type, entry.file_size = method, total_size(parts)
        with archive.open(entry, "w") as packed:
            for block in iter_bytes(file, parts):
                packed.write(block)
                yield sink.take()
    yield sink.take()


def _time_of(seconds: float) -> tuple[int, int, int, int, int, int]:
    year, month, day, hour, minute, second, *_ = time.gmtime(max(seconds, 0))
    return max((year, month, day, hour, minute, second), _EARLIEST)


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
