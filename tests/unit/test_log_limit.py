"""A log that grows without end takes a bounded space, and everything that is left of it is read by its offsets."""

import itertools
import os
from pathlib import Path

import pytest

from rekindle.contract.files import HOLE_BLOCK, can_punch_holes
from rekindle.keeper.observers.log_growth import LogLimit
from rekindle_service.run_readers.log_files import (
    SAME_LENGTH,
    Span,
    data_spans,
    hole_at,
    hole_note,
    iter_bytes,
    read_chunk,
    tail_offset,
    total_size,
    without_holes,
)
from rekindle_service.run_readers.log_search import SearchLimits, search

LIMIT = 1 << 20


@pytest.fixture
def log(tmp_path: Path) -> Path:
    if not can_punch_holes(tmp_path):
        pytest.skip("this file system cannot punch holes")
    return tmp_path / "stdout.log"


def line(number: int) -> bytes:
    return b"line %08d \xe2\x9c\x93\n" % number


def grow(log: Path, limit: LogLimit, lines: int) -> bytes:
    """Write as a rank does; returns all that was ever written."""
    written = b"".join(map(line, range(lines)))
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for part in range(0, len(written), 300_000):
        os.write(fd, written[part : part + 300_000])
        limit.apply()
    os.close(fd)
    return written


def test_the_space_is_bounded_and_the_rest_keeps_its_offsets(log: Path) -> None:
    written = grow(log, LogLimit(LIMIT, lambda: [log]), 300_000)
    status = log.stat()
    assert status.st_size == len(written) > 5 * LIMIT
    assert status.st_blocks * 512 <= LIMIT * 17 // 16 + 2 * HOLE_BLOCK
    with log.open("rb") as file:
        first, last = data_spans(file)
        for span in (first, last):
            assert os.pread(file.fileno(), span.end - span.start, span.start) == written[span.start : span.end]
    assert first == (0, LIMIT // 8)
    assert last.end - last.start >= LIMIT * 7 // 8


def test_chunks_skip_the_hole_and_end_and_begin_between_characters(log: Path) -> None:
    written = grow(log, LogLimit(LIMIT, lambda: [log]), 100_000)
    with log.open("rb") as file:
        hole = hole_at(file, LIMIT // 2)
        assert hole is not None
        text, offsets = b"", []
        offset = 0
        while (chunk := read_chunk(file, offset, 64 * 1024)).next_offset > chunk.offset:
            assert len(chunk.text.encode()) == chunk.next_offset - chunk.offset
            if chunk.offset != offset:
                offsets.append((offset, chunk.offset))
            text, offset = text + chunk.text.encode(), chunk.next_offset
        assert offset == len(written)
        assert offsets == [(hole.start, hole.end)]
        kept = (written[: hole.start], written[hole.end :])
        assert text.decode() == "".join(part.decode(errors=SAME_LENGTH) for part in kept)
        assert hole_at(file, hole.start - 1) is None
        assert hole_at(file, hole.end) is None
        assert read_chunk(file, hole.end - 1, 100).offset == hole.end


def test_the_last_lines_and_a_search_never_read_the_hole(log: Path) -> None:
    lines = 100_000
    written = grow(log, LogLimit(LIMIT, lambda: [log]), lines)
    with log.open("rb") as file:
        (_, last) = data_spans(file)
        assert tail_offset(file, 10, 1 << 20) == len(written) - 10 * len(line(0))
        assert last.start <= tail_offset(file, 10**6, 1 << 40) <= last.start + 3
        assert hits(file, b"line", 0) + hits(file, b"line", 1 << 62, backwards=True)
        assert hits(file, line(lines // 4).strip(), 0) == [], "it was in the part that is gone"
        assert hits(file, line(5).strip(), 0) == [5 * len(line(0))]
        assert hits(file, line(lines - 5).strip(), 1 << 62, backwards=True) == [(lines - 5) * len(line(0))]


def hits(file, query: bytes, start: int, *, backwards: bool = False) -> list[int]:
    page = search(file, query, start, backwards=backwards, limits=SearchLimits(seconds=60))
    assert page.next is None or len(page.items) == 100
    return [each.offset for each in page.items]


def test_a_download_has_a_line_in_place_of_what_was_removed(log: Path) -> None:
    written = grow(log, LogLimit(LIMIT, lambda: [log]), 100_000)
    with log.open("rb") as file:
        first, last = data_spans(file)
        parts = list(without_holes(file))
        data = b"".join(iter_bytes(file, parts))
    assert len(data) == total_size(parts)
    note = f"\n{hole_note(last.start - first.end)}\n".encode()
    assert data == written[: first.end] + note + written[last.start :]


def test_without_a_limit_below_it_and_for_what_is_no_log_nothing_is_done(log: Path) -> None:
    written = grow(log, LogLimit(None, lambda: [log]), 100_000)
    link, fifo = log.with_name("link"), log.with_name("fifo")
    link.symlink_to(log)
    os.mkfifo(fifo)
    LogLimit(LIMIT, lambda: [link, fifo, log.parent, log.with_name("absent")]).apply()
    LogLimit(len(written), lambda: [log]).apply()
    assert log.read_bytes() == written


def test_a_keeper_that_follows_a_lost_one_continues(log: Path) -> None:
    grow(log, LogLimit(LIMIT, lambda: [log]), 100_000)
    limit = LogLimit(LIMIT, lambda: [log])
    written = b"".join(map(line, itertools.chain(range(100_000), range(150_000))))
    with log.open("ab") as file:
        file.write(written[len(line(0)) * 100_000 :])
    limit.apply()
    with log.open("rb") as file:
        first, last = data_spans(file)
        assert (first, last.end) == (Span(0, LIMIT // 8), len(written))
        assert os.pread(file.fileno(), 1 << 21, last.start) == written[last.start :]


def test_a_script_that_pretends_a_huge_log_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    path.write_bytes(b"head\n")
    os.truncate(path, 1 << 43)
    with path.open("rb") as file:
        assert data_spans(file) == [Span(0, 4096)]
        assert read_chunk(file, 1 << 40, 100).text == ""
        assert hits(file, b"head", 0) == [0]
