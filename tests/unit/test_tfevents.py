"""ScalarEvent files as TensorBoard writes them, and as nobody should."""

import io
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from event_files import delimited, event, record, simple, varint
from rekindle.keeper.observers.tensorboard import DamagedError, Scalar, ScalarEvent, masked_crc, read_events

REAL = bytes.fromhex("""
4800000000000000fe92489d09af7a897e5cc0da411a0d627261696e2e4576656e743a32522e0a2c74656e736f72626f6172642e73756d
6d6172792e7772697465722e6576656e745f66696c655f777269746572d8b5099a1a00000000000000129bd82d090000000000408f4010
012a0d0a0b0a046c6f7373150000003f0729077e2b00000000000000861bc34b090000000000488f4010022a1e0a1c0a036e6577420808
012a040000803e4a0b0a090a077363616c617273d98a39223200000000000000241956ec090000000000508f4010032a250a230a06646f
75626c65420c080232089a9999999999b93f4a0b0a090a077363616c6172730f8ee425
""")
"""Written by tensorboard 2.21: its greeting, an old scalar, a new one (tensor of a float), one of double precision."""


def events(data: bytes) -> list[ScalarEvent | None]:
    return [found for _, found in read_events(io.BytesIO(data), len(data))]


def test_a_real_file_is_read() -> None:
    first, *read = events(REAL)
    assert first is not None
    assert first.scalars == []
    assert read == [
        ScalarEvent(1000.0, 1, [Scalar("loss", 0.5)]),
        ScalarEvent(1001.0, 2, [Scalar("new", 0.25)]),
        ScalarEvent(1002.0, 3, [Scalar("double", 0.1)]),
    ]


def test_the_checksum_is_crc_32c_as_tfrecords_mask_it() -> None:
    crc = 0xE3069283  # the check value of CRC-32C
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) % (1 << 32)


@pytest.mark.parametrize("cut", range(89, len(REAL), 7))
def test_a_torn_tail_is_left_for_later(cut: int) -> None:
    read = list(read_events(io.BytesIO(REAL[:cut]), cut))
    assert all(end <= cut for end, _ in read)
    assert [found for _, found in read] == events(REAL)[: len(read)]
    rest = io.BytesIO(REAL)
    rest.seek(read[-1][0])
    assert [found for _, found in read_events(rest, len(REAL))] == events(REAL)[len(read) :]


def with_a_wrong_checksum() -> bytes:
    damaged = bytearray(record(event(1, simple("loss", 1.0))))
    damaged[20] ^= 1
    return bytes(damaged)


NO_EVENTS = [b"\xff" * 20, b"\x2a\xff\x01", b"\x09\x00", b"\x80", b"\x0b", b"\x2a\x05\x0a\x7fabc"]
TEN_MEGABYTES = struct.pack("<Q", 10_000_000)
UNREAD = TEN_MEGABYTES + struct.pack("<I", masked_crc(TEN_MEGABYTES)) + bytes(10_000_004)  # its checksum is wrong too


@pytest.mark.parametrize(
    "bad",
    [with_a_wrong_checksum(), UNREAD, *map(record, NO_EVENTS), record(b"\x10" + b"\xff" * 11)],
    ids=lambda bad: bad[:20].hex(),
)
def test_a_record_that_is_damaged_too_long_or_no_event_is_skipped(bad: bytes) -> None:
    assert events(bad + record(event(2, simple("loss", 2.0)))) == [None, ScalarEvent(0.0, 2, [Scalar("loss", 2.0)])]


def test_nothing_after_a_damaged_length_is_read() -> None:
    damaged = bytearray(record(b""))
    damaged[1] ^= 1
    with pytest.raises(DamagedError, match="at byte 255"):
        events(REAL + bytes(damaged))


def test_values_that_are_no_numbers_are_left_to_the_reader() -> None:
    (found,) = events(record(event(1, simple("nan", math.nan), simple("inf", -math.inf))))
    assert found is not None
    assert [repr(scalar.value) for scalar in found.scalars] == ["nan", "-inf"]


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 0), (-7, -7), ((1 << 63) - 1, (1 << 63) - 1), (-(1 << 63), -(1 << 63)), (1 << 63, -(1 << 63))],
)
def test_a_step_has_64_bits_and_a_sign(step: int, expected: int) -> None:
    assert events(record(event(step, simple("loss", 1.0)))) == [ScalarEvent(0.0, expected, [Scalar("loss", 1.0)])]


def test_unknown_fields_are_skipped() -> None:
    unknown = delimited(99, b"x") + varint(98 << 3) + varint(1 << 40) + varint(97 << 3 | 5) + bytes(4)
    value = simple("loss", 1.0) + delimited(9, delimited(4, b"metadata")) + unknown
    assert events(record(event(1, value) + unknown)) == [ScalarEvent(0.0, 1, [Scalar("loss", 1.0)])]


def tensor(dtype: int, content: bytes, shape: bytes = b"") -> bytes:
    return delimited(1, b"t") + delimited(8, b"\x08" + varint(dtype) + delimited(2, shape) + content)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (tensor(1, delimited(4, struct.pack("<f", 2.5))), [Scalar("t", 2.5)]),  # tensor_content
        (tensor(1, b"\x2d" + struct.pack("<f", 2.5)), [Scalar("t", 2.5)]),  # float_val, not packed
        (tensor(2, delimited(6, struct.pack("<d", 2.5))), [Scalar("t", 2.5)]),
        (tensor(1, delimited(4, struct.pack("<ff", 1, 2)), delimited(2, b"\x08\x02")), []),  # a vector of two
        (tensor(1, delimited(4, struct.pack("<d", 2.5))), []),  # a float has not eight bytes
        (tensor(7, delimited(8, b"<script>")), []),  # a text
        (tensor(1, b""), []),
        (delimited(8, b"\x08\x01" + delimited(5, struct.pack("<f", 1))), []),  # no tag
    ],
)
def test_only_single_numbers_of_tensors_are_read(value: bytes, read: list[Scalar]) -> None:
    assert events(record(event(1, value))) == [ScalarEvent(0.0, 1, read)]


def test_a_name_that_is_no_text_is_made_one() -> None:
    assert events(record(event(1, simple(b"\xff\x00<b>", 1.0)))) == [
        ScalarEvent(0.0, 1, [Scalar("\ufffd\x00<b>", 1.0)])
    ]


@given(st.binary(max_size=200))
def test_any_record_is_an_event_or_nothing(data: bytes) -> None:
    (found,) = events(record(data))
    assert found is None or isinstance(found, ScalarEvent)


@given(st.binary(max_size=300), st.integers(0, 255))
def test_any_bytes_after_a_file_are_skipped_or_end_it(noise: bytes, at: int) -> None:
    data = REAL[:at] + noise
    try:
        assert len(events(data)) <= len(data)
    except DamagedError as error:
        assert "damaged length" in str(error)  # noqa: PT017  # both ways are right
