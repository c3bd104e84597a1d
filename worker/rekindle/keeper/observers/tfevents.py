"""Scalars out of TensorBoard event files, without TensorBoard: TFRecords that hold Event messages of protobuf.

Only what is needed is read, and nothing is trusted: a script may write anything into a file of that name. Sources:
tensorflow's ``record_writer.h`` for the records, ``event.proto``, ``summary.proto`` and ``tensor.proto`` for the rest.
"""

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

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


_TABLE = list(range(256))
for _ in range(8):
    _TABLE = [crc >> 1 ^ _CASTAGNOLI * (crc & 1) for crc in _TABLE]

_Message = dict[tuple[int, int], list[Any]]  # (field number, wire type) → values, in their order


def _event(data: bytes) -> Event | None:
    try:
        message = _parse(data)
        (at,) = _DOUBLE.unpack(_last(message, 1, 1, _DOUBLE.pack(0.0)))
        step = int(_last(message, 2, 0, 0))
        summaries = [_parse(summary) for summary in message.get((5, 2), ())]
        scalars = [_scalar(_parse(value)) for summary in summaries for value in summary.get((1, 2), ())]
    except (ValueError, LookupError, struct.error):
        return None
    return Event(at, step - (1 << 64) if step >> 63 else step, [scalar for scalar in scalars if scalar is not None])


def _scalar(value: _Message) -> Scalar | None:
    """A Summary.Value that is one number: the old ``simple_value``, or a tensor of no dimension."""
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
    """Of a field that occurs several times the last one counts."""
    return message.get((number, wire_type), [default])[-1]


def _parse(data: bytes) -> _Message:
    """Raises ValueError or LookupError where ``data`` is no message."""
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
