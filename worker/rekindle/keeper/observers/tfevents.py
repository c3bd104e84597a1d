"""Scalars out of TensorBoard event files, without TensorBoard: TFRecords that hold Event messages of protobuf.

Only what is needed is read, and nothing is trusted: a script may write anything into a file of that name. Sources:
tensorflow's ``record_writer.h`` for the records, ``event.proto``, ``summary.proto`` and ``tensor.proto`` for the rest.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

MAX_RECORD_BYTES = 64 * 1024
"""Longer records hold images, audio and graphs, and are skipped unread."""

_HEADER = struct.Struct("<QI")  # length of the data, its masked CRC; then the data, and its own masked CRC
_CRC = struct.Struct("<I")
_CASTAGNOLI = 0x82F63B78
_FIXED_SIZES = {1: 8, 5: 4}  # bytes, by wire type
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_BY_DTYPE = {1: _FLOAT, 2: _DOUBLE}  # by tensor.proto's DataType


class Scalar(NamedTuple):
    """One value of one tag; it may be NaN or infinite."""

    tag: str
    value: float


class Event(NamedTuple):
    """One record; ``scalars`` is empty where it holds something else."""

    at: float  # seconds since the epoch, as the writer has it
    step: int
    scalars: list[Scalar]


class DamagedError(Exception):
    """The file cannot be read any further: the length of the next record is wrong, so it is not known where it ends."""


def read_events(file: BinaryIO, end: int) -> Iterator[tuple[int, Event | None]]:
    """Every whole record from the file's position up to byte ``end``, each with the offset after it.

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
    """CRC-32C, rotated and moved by a constant, as TFRecords store it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ _CASTAGNOLI * (crc & 1) for crc in table]
    return table


_TABLE = _table()


def _event(data: bytes) -> Event | None:
    at, step, scalars = 0.0, 0, []
    try:
        for field in _fields(data):
            match field:
                case 1, 1, bytes(raw):
                    (at,) = _DOUBLE.unpack(raw)
                case 2, 0, int(count):
                    step = count - (1 << 64) if count >> 63 else count
                case 5, 2, bytes(summary):
                    scalars += _summary(summary)
    except (ValueError, IndexError):
        return None
    return Event(at, step, scalars)


def _summary(data: bytes) -> list[Scalar]:
    found = [_scalar(value) for number, _, value in _fields(data) if number == 1 and isinstance(value, bytes)]
    return [scalar for scalar in found if scalar is not None]


def _scalar(data: bytes) -> Scalar | None:
    """A Summary.Value that is one number: the old ``simple_value``, or a tensor of no dimension."""
    tag, number = "", None
    for field in _fields(data):
        match field:
            case 1, 2, bytes(name):
                tag = name.decode(errors="replace")
            case 2, 5, bytes(raw):
                (number,) = _FLOAT.unpack(raw)
            case 8, 2, bytes(tensor):
                number = _element(tensor)
    return None if number is None or not tag else Scalar(tag, number)


def _element(data: bytes) -> float | None:
    """The one element of a TensorProto of floats or doubles; None for any other tensor."""
    dtype, content = 0, b""
    for field in _fields(data):
        match field:
            case 1, 0, int(number):
                dtype = number
            case 2, 2, bytes(shape) if shape:
                return None
            case ((4 | 5 | 6), (1 | 2 | 5), bytes(raw)):  # tensor_content, float_val, double_val: packed or alone
                content = raw
    form = _BY_DTYPE.get(dtype)
    return None if form is None or len(content) != form.size else float(form.unpack(content)[0])


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Number, wire type and value of each field. Raises ValueError or IndexError where ``data`` is no message."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        if kind == 0:
            number, position = _varint(data, position)
            yield key >> 3, kind, number
            continue
        if kind == 2:
            length, position = _varint(data, position)
        elif (length := _FIXED_SIZES.get(kind, -1)) < 0:
            raise ValueError(f"wire type {kind} is not in use")
        if position + length > len(data):
            raise ValueError("a field goes beyond its message")
        yield key >> 3, kind, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, position
    raise ValueError("a number has more than ten bytes")
