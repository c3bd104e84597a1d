"""TensorBoard event files made by hand, for machines without TensorBoard."""

import struct
from pathlib import Path

from rekindle.keeper.observers.tensorboard import masked_crc


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def delimited(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def event(step: int, *values: bytes, at: float = 0.0) -> bytes:
    """An Event message with one Summary of ``values``."""
    summary = b"".join(delimited(1, value) for value in values)
    told_step = b"\x10" + varint(step % (1 << 64))
    return b"\x09" + struct.pack("<d", at) + told_step + delimited(5, summary)


def simple(tag: str | bytes, value: float) -> bytes:
    """A Summary.Value as ``add_scalar`` writes it."""
    name = tag if isinstance(tag, bytes) else tag.encode()
    return delimited(1, name) + b"\x15" + struct.pack("<f", value)


class EventFile:
    """One event file, begun ``at`` (seconds since the epoch)."""

    def __init__(self, directory: Path, at: float, pid: int = 7, number: int = 0) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"events.out.tfevents.{int(at):010d}.host.name.{pid}.{number}"
        self._at = at
        self.add_bytes(record(b"\x09" + struct.pack("<d", at) + delimited(3, b"brain.Event:2")))

    def add(self, step: int, **values: float) -> None:
        self.add_bytes(record(event(step, *(simple(tag, value) for tag, value in values.items()), at=self._at + step)))

    def add_bytes(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)
