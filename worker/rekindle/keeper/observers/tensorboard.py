"""Scalars that a script writes for TensorBoard, copied while it runs to where the page reads metrics.

The script is not changed for it: its event files are found by their names below its working directory and its snapshot
directory, wherever Lightning, Transformers or a SummaryWriter put them. They are read without TensorBoard: TFRecords
that hold Event messages of protobuf. Only what is needed is read, and nothing is trusted: a script may write anything
into a file of that name. Sources: tensorflow's ``record_writer.h`` for the records, ``event.proto``, ``summary.proto``
and ``tensor.proto`` for the rest.
"""

import math
import os
import struct
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rekindle.contract.run_dir.rank_records import MetricPoint
from rekindle.contract.safe_open import open_regular
from rekindle.keeper.observers.checkpoint_files import walk_files
from rekindle.training.reporter import MetricLog

INTERVAL = 2.0  # seconds
MAX_SECONDS = 0.1  # per call: a keeper that reads does not notice that a rank dies
LAST_MAX_SECONDS = 3.0  # when the ranks have gone: the next attempt waits for it, if that much is left
MAX_FILES = 1000  # of an attempt, and new names examined per call
MAX_BYTES = 256 << 20  # of the copy. When it has more, nothing is added: a script may log for ever
_REST_FACTOR = 20  # times as long as a call has taken passes before the next one
_MARK = "events.out.tfevents."
_MAX_VALUES = 40  # in a line, so that no line is too long for readers
_MAX_NAME = 200  # characters

MAX_RECORD_BYTES = 64 * 1024  # longer records hold images, audio and graphs, and are skipped unread

_HEADER = struct.Struct("<QI")  # length of the data, its masked CRC; then the data, and its own masked CRC
_CRC = struct.Struct("<I")
_CASTAGNOLI = 0x82F63B78
_FIXED_SIZES = {1: 8, 5: 4}  # bytes, by wire type
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_BY_DTYPE = {1: _FLOAT, 2: _DOUBLE}  # by tensor.proto's DataType
_CONTENTS = ((4, 2), (5, 2), (5, 5), (6, 2), (6, 1))  # tensor_content, float_val, double_val: packed or alone


class Scalar(NamedTuple):
    """One value of one tag; it may be NaN or infinite."""

    tag: str
    value: float


class ScalarEvent(NamedTuple):
    """One record; ``scalars`` is empty where it holds something else."""

    at: float  # seconds since the epoch, as the writer has it
    step: int
    scalars: list[Scalar]


class DamagedError(Exception):
    """The file cannot be read any further: the length of the next record is wrong, so it is not known where it ends."""


@dataclass(slots=True)
class _EventFile:
    """An event file of this attempt."""

    path: Path
    prefix: str
    offset: int = 0


class TensorBoardImport:
    """Copies the scalars of one attempt. No fsync: they mean nothing to a resume.

    A file belongs to the attempt in which its first record was written: others came with the code, or are an earlier
    attempt's.
    """

    def __init__(self, path: Path, directories: Sequence[Path]) -> None:
        self._path, self._directories, self._log = path, directories, MetricLog(path)
        self._started_at = time.time()
        self._files: list[_EventFile] = []
        self._known: set[str] = set()  # paths
        self._root: Path | None = None
        self._next_call = 0.0  # seconds of CLOCK_MONOTONIC

    def copy_if_due(self, other_ranks: Collection[int]) -> None:
        """Copy what is new. ``other_ranks``: pids of all ranks but the first, whose files are ignored."""
        now = time.monotonic()
        if now >= self._next_call:
            self._copy_new(other_ranks, MAX_SECONDS)
            self._next_call = time.monotonic() + max(INTERVAL, _REST_FACTOR * (time.monotonic() - now))

    def finish(self, other_ranks: Collection[int]) -> None:
        """Copy what the ranks have left, now that they are gone."""
        self._copy_new(other_ranks, LAST_MAX_SECONDS)

    def _copy_new(self, other_ranks: Collection[int], seconds: float) -> None:
        """Copy new scalars; what does not fit on a full disk is a gap in the curves, no failure."""
        with suppress(OSError):
            self._find_files(other_ranks)
            if self._files and not (self._path.exists() and self._path.stat().st_size > MAX_BYTES):
                self._copy(time.monotonic() + seconds)
                self._log.flush()

    def _find_files(self, other_ranks: Collection[int]) -> None:
        found: list[tuple[float, Path]] = []
        new = (path for path in self._new_paths() if writer_of(path.name) not in other_ranks)
        for path in islice(new, MAX_FILES):
            started_at = _first_record_at(path)
            if started_at is not None:
                self._known.add(str(path))
                found.append((started_at, path))
        for started_at, path in sorted(found):
            if started_at >= self._started_at and len(self._files) < MAX_FILES:
                self._root = self._root or path.parent
                self._files.append(_EventFile(path, prefix_of(path.parent, self._root)))

    def _new_paths(self) -> Iterator[Path]:
        for directory in self._directories:
            for entry in walk_files(directory):
                if _MARK in entry.name and entry.path not in self._known:
                    yield Path(entry.path)

    def _copy(self, deadline: float) -> None:
        """Copy one file at least; those that were not reached come first the next time."""
        for number, file in enumerate(self._files, start=1):
            with suppress(DamagedError, FileNotFoundError):
                self._copy_file(file, deadline)
            if time.monotonic() > deadline:
                self._files = self._files[number:] + self._files[:number]
                return

    def _copy_file(self, event_file: _EventFile, deadline: float) -> None:
        points: list[MetricPoint] = []
        with open_regular(event_file.path) as file:
            file.seek(event_file.offset)
            try:
                for offset, event in read_events(file, os.fstat(file.fileno()).st_size):
                    event_file.offset = offset
                    if event is not None:
                        _add_scalars(points, event, event_file.prefix)
                    if time.monotonic() > deadline:
                        return
            finally:
                for point in points:
                    self._log.add(point)


def _add_scalars(points: list[MetricPoint], event: ScalarEvent, prefix: str) -> None:
    """Add scalars of the same step together in one point, as far as they fit."""
    at = event.at if math.isfinite(event.at) else time.time()
    for tag, value in event.scalars:
        name, last = (prefix + tag)[:_MAX_NAME], points[-1] if points else None
        if last is None or last.step != event.step or name in last.values or len(last.values) >= _MAX_VALUES:
            last = MetricPoint(event.step, None, at)
            points.append(last)
        last.values[name] = value


def writer_of(name: str) -> int | None:
    """The pid in the name of an event file, ``events.out.tfevents.<seconds>.<host>.<pid>.<number>``."""
    parts = name.rpartition(_MARK)[2].split(".")
    return int(parts[-2]) if len(parts) >= 4 and parts[-2].isdecimal() else None


def prefix_of(directory: Path, root: Path) -> str:
    """Prefix of the names of scalars in ``directory``: none in the attempt's first directory, ``root``.

    Else the path from there: next to ``runs/train`` it is ``val/`` for ``runs/val``. So the names are the same in every
    attempt, though the directories' may hold the time or a number.
    """
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(directory.parts, root.parts, strict=False)))
    return "".join(f"{part}/" for part in directory.parts[common:])


def _first_record_at(path: Path) -> float | None:
    """When the first record was written, in seconds since the epoch; None where there is none yet."""
    with suppress(DamagedError, OSError), open_regular(path) as file:
        for _, event in read_events(file, os.fstat(file.fileno()).st_size):
            return 0.0 if event is None else event.at
    return None


def read_events(file: BinaryIO, end: int) -> Iterator[tuple[int, ScalarEvent | None]]:
    """Read every whole record from the file's position up to byte ``end``, each with the offset after it.

    A record that is not whole (yet) ends the iteration. One that is too long, that has a wrong checksum or that is no
    Event comes as None. Raises DamagedError.
    """
    position = file.tell()
    while position + _HEADER.size <= end:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return
        length, crc = _HEADER.unpack(header)
        if masked_crc(header[:8]) != crc:
            raise DamagedError(f"the record at byte {position} has a damaged length")
        position += _HEADER.size + length + _CRC.size
        if position > end:
            return
        if length > MAX_RECORD_BYTES:
            file.seek(position)
            yield position, None
        else:
            data, checksum = file.read(length), file.read(_CRC.size)
            yield position, _event(data) if _CRC.pack(masked_crc(data)) == checksum else None


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and shifted by a constant, as TFRecords store it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


_TABLE = list(range(256))
for _ in range(8):
    _TABLE = [crc >> 1 ^ _CASTAGNOLI * (crc & 1) for crc in _TABLE]

_Message = dict[tuple[int, int], list[Any]]  # (field number, wire type) → values, in their order


def _event(data: bytes) -> ScalarEvent | None:
    try:
        message = _parse(data)
        (at,) = _DOUBLE.unpack(_last(message, 1, 1, _DOUBLE.pack(0.0)))
        step = int(_last(message, 2, 0, 0))
        summaries = [_parse(summary) for summary in message.get((5, 2), ())]
        scalars = [_scalar(_parse(value)) for summary in summaries for value in summary.get((1, 2), ())]
    except (ValueError, LookupError, struct.error):
        return None
    return ScalarEvent(
        at, step - (1 << 64) if step >> 63 else step, [scalar for scalar in scalars if scalar is not None]
    )


def _scalar(value: _Message) -> Scalar | None:
    """Read a Summary.Value that is one number: the old ``simple_value``, or a tensor of no dimension."""
    tag = _last(value, 1, 2, b"").decode(errors="replace")
    if (2, 5) in value:
        (number,) = _FLOAT.unpack(_last(value, 2, 5))
    else:
        number = _element(_parse(_last(value, 8, 2, b"")))
    return None if number is None or not tag else Scalar(tag, number)


def _element(tensor: _Message) -> float | None:
    """The one element of a TensorProto of floats or doubles; None for any other tensor."""
    form = _BY_DTYPE.get(_last(tensor, 1, 0, 0))
    if form is None or _last(tensor, 2, 2, b""):
        return None
    contents = [raw for key in _CONTENTS for raw in tensor.get(key, ())]
    return float(form.unpack(contents[-1])[0]) if contents and len(contents[-1]) == form.size else None


def _last(message: _Message, number: int, wire_type: int, default: Any = None) -> Any:
    """The last value of a field, which counts where it occurs several times."""
    return message.get((number, wire_type), [default])[-1]


def _parse(data: bytes) -> _Message:
    """Read a message. Raises ValueError or LookupError where ``data`` is none."""
    message: _Message = {}
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        wire_type = key & 7
        value: int | bytes
        if wire_type == 0:
            value, position = _varint(data, position)
        else:
            length, position = _varint(data, position) if wire_type == 2 else (_FIXED_SIZES[wire_type], position)
            value, position = data[position : position + length], position + length
        if position > len(data):
            raise ValueError("a field exceeds its message")
        message.setdefault((key >> 3, wire_type), []).append(value)
    return message


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, position
    raise ValueError("a number has more than ten bytes")
