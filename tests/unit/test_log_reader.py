import io
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle_service.run_readers.log_files import last_line, read_chunk, tail_offset


def read_all(file: BinaryIO, limit: int) -> str:
    text, offset = "", 0
    while (chunk := read_chunk(file, offset, limit)).next_offset > offset:
        text, offset = text + chunk.text, chunk.next_offset
    return text


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 64])
def test_chunks_of_any_size_join_to_the_same_text_up_to_the_last_whole_character(log, limit: int) -> None:
    text = "loss 0.5 → 0.4 ✓ 🔥 fertig\n" * 3
    assert read_all(log(text.encode() + "✓".encode()[:-1]), limit) == text


@given(data=st.binary(max_size=300), limit=st.integers(1, 40))
def test_any_bytes_are_read_to_the_end_and_text_has_their_length(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, limit: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "stdout.log"
    path.write_bytes(data)
    with path.open("rb") as file:
        offset = 0
        while (chunk := read_chunk(file, offset, limit)).next_offset > offset:
            assert len(chunk.text.encode()) == chunk.next_offset - chunk.offset
            offset = chunk.next_offset
    assert len(data) - offset < 4  # at most the beginning of a character


@pytest.mark.parametrize(
    ("content", "lines", "expected"),
    [
        (b"a\nb\nc\n", 1, b"c\n"),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc\n", 3, b"a\nb\nc\n"),
        (b"a\nb\nc\n", 99, b"a\nb\nc\n"),
        (b"a\nb\nc", 1, b"c"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\nc", 0, b""),
        (b"a\nb\nc\n", 0, b""),
        (b"\n\n\n", 2, b"\n\n"),
        (b"", 5, b""),
        (b"no newline", 1, b"no newline"),
    ],
)
def test_the_tail_has_the_given_number_of_lines(log, content: bytes, lines: int, expected: bytes) -> None:
    assert content[tail_offset(log(content), lines, 1000) :] == expected


def test_the_tail_of_a_log_of_many_blocks_is_found(log) -> None:
    content = b"".join(b"line %d %s\n" % (i, b"x" * 90) for i in range(5000))
    start = tail_offset(log(content), 2000, 1 << 20)
    assert content[start:].startswith(b"line 3000 ")


def test_one_endless_line_has_a_tail_within_the_limit_that_begins_with_a_whole_character(log) -> None:
    content = "🔥".encode() * 100_000
    start = tail_offset(log(content), 1, 1001)
    assert len(content) - start == 1000


def test_reading_the_end_of_a_huge_file_does_not_read_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "huge.log"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole of 1 TiB: reading it whole would never end
        file.seek(0, io.SEEK_END)
        file.write(b"\nthe end\n")
    with path.open("rb") as file:
        assert tail_offset(file, 1, 1 << 20) == (1 << 40) + 1
        assert last_line(file) == "the end"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", None),
        (b"\n \n\x1b[0m\n", None),
        (b"one\ntwo\n\n", "two"),
        (b" 10%|#   |\r 20%|##  |\r 30%|### |", "30%|### |"),
        (b" 10%|#   |\r 20%|##  |\r\n", "20%|##  |"),
        (b"\x1b[31mred\x1b[0m \x1b]8;;http://evil\x07link\x1b]8;;\x07\n", "red link"),
        ("\x9b31mred\u202eevil\n".encode(), "redevil"),
        (b"\xff\xfebytes\n", "\ufffd\ufffdbytes"),
        (b"x" * 5000, "x" * 200),
    ],
)
def test_the_last_line_is_what_a_terminal_would_show(log, content: bytes, expected: str | None) -> None:
    assert last_line(log(content)) == expected
