"""The logs of all ranks as one, in the order in which the lines came, from any position in either direction."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.contract.files import can_punch_holes
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.attempt_samples import LogName, LogSizes
from rekindle.contract.run_dir.paths import STREAMS, RunDir
from rekindle.keeper.observers.log_growth import LogLimit
from rekindle_service.run_readers.merged_log import LogLevel, MergedLog, Position, ReadLimits, TimedLine, level_of

ATTEMPT = AttemptInfo(1)


class Writer:
    """Writes logs, and the record of the keeper."""

    def __init__(self, root: Path) -> None:
        self.run_dir = RunDir(root)
        self.sizes: dict[LogName, int] = {}
        self.now = 1000.0

    def path(self, rank: int, stream: str) -> Path:
        path = self.run_dir.attempt(1).rank(rank).log(stream)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, text: str | bytes, rank: int = 0, stream: str = "stdout") -> None:
        data = text.encode() if isinstance(text, str) else text
        with self.path(rank, stream).open("ab") as file:
            file.write(data)
        name = LogName(rank, stream)
        self.sizes[name] = self.sizes.get(name, 0) + len(data)

    def record(self, at: float | None = None) -> None:
        self.now += 0.25
        with self.run_dir.attempt(1).log_times.open("a") as file:
            file.write(json.dumps(LogSizes(at or self.now, self.sizes).to_json()) + "\n")

    def step(self, text: str | bytes, rank: int = 0, stream: str = "stdout") -> None:
        self.write(text, rank, stream)
        self.record()

    def open(self, ranks: int = 4, *, over: bool = True) -> MergedLog:
        logs = [LogName(rank, stream) for rank in range(ranks) for stream in STREAMS]
        return MergedLog(self.run_dir, ATTEMPT, logs, over=over)


@pytest.fixture
def log(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


def anything(_: TimedLine) -> bool:
    return True


def up_to(lines: int) -> ReadLimits:
    return ReadLimits(lines, seconds=60.0)


def forward(writer: Writer, lines: int, **options: bool) -> Iterator[TimedLine]:
    position: Position | None = None
    while True:
        with writer.open(**options) as log:
            page = log.after(position, up_to(lines), anything)
        yield from page.lines
        if page.complete:
            return
        position = page.next


def backward(writer: Writer, lines: int) -> list[TimedLine]:
    position: Position | None = None
    found: list[TimedLine] = []
    while True:
        with writer.open() as log:
            page = log.before(position, up_to(lines), anything)
        found[:0] = page.lines
        if page.complete:
            return found
        position = page.previous


def texts(lines: Iterator[TimedLine] | list[TimedLine]) -> list[str]:
    return [line.text for line in lines]


def test_lines_of_all_ranks_and_both_streams_are_in_the_order_in_which_they_came(log: Writer) -> None:
    log.step("a\nb", rank=1)
    log.step("c\n", rank=0, stream="stderr")
    log.step("b\n", rank=1)
    log.write("e\n", rank=1)
    log.write("d\n", rank=0)
    log.record()
    lines = list(forward(log, 100))
    assert [(line.rank, line.stream, line.text, line.at) for line in lines] == [
        (1, "stdout", "a", 1000.25),
        (0, "stderr", "c", 1000.5),
        (1, "stdout", "bb", 1000.75),
        (0, "stdout", "d", 1001.0),
        (1, "stdout", "e", 1001.0),
    ]
    assert [(line.offset, line.end) for line in lines if line.rank == 1] == [(0, 2), (2, 5), (5, 7)]


@pytest.mark.parametrize("lines", [1, 2, 7, 1000])
def test_pages_of_any_size_in_either_direction_have_each_line_once(log: Writer, lines: int) -> None:
    for number in range(60):
        log.write(f"{number} of rank {number % 3}\npart", rank=number % 3, stream=STREAMS[number % 2])
        if number % 4 == 0:
            log.record()
    log.record()
    everything = texts(forward(log, 1000))
    assert len(everything) == 60
    assert texts(forward(log, lines)) == everything
    assert texts(backward(log, lines)) == everything


def test_a_page_continues_from_any_line_in_both_directions(log: Writer) -> None:
    for number in range(20):
        log.step(f"{number}\n", rank=number % 3)
    with log.open() as merged:
        page = merged.since(1002.5, up_to(3), anything)
        assert texts(page.lines) == ["9", "10", "11"]
        assert texts(merged.before(page.previous, up_to(2), anything).lines) == ["7", "8"]
        assert texts(merged.after(page.next, up_to(2), anything).lines) == ["12", "13"]
        late = merged.since(9999.0, up_to(1000), anything)
        assert late.lines == []
        assert texts(merged.before(late.previous, up_to(1), anything).lines) == ["19"]


def test_where_the_clock_was_set_back_the_order_stays(log: Writer) -> None:
    for number, at in enumerate((100.0, 50.0, 60.0, 101.0)):
        log.write(f"{number}\n", rank=number % 2)
        log.record(at)
    lines = list(forward(log, 2))
    assert texts(lines) == ["0", "1", "2", "3"]
    assert [line.at for line in lines] == [100.0, 100.0, 100.0, 101.0]


def test_a_job_without_a_record_is_read_by_rank_and_without_times(log: Writer) -> None:
    for rank in (1, 0):
        log.write(f"a{rank}\nb{rank}\n", rank=rank)
    log.write("unfinished")
    lines = list(forward(log, 1))
    assert texts(lines) == ["a0", "b0", "a1", "b1"]
    assert {line.at for line in lines} == {None}
    with log.open() as merged:
        assert not merged.has_times
        assert texts(merged.unfinished()) == ["unfinished"]
    assert texts(backward(log, 1)) == ["a0", "b0", "a1", "b1"]


def test_unrecorded_output_waits_for_the_record_and_comes_last_once_no_keeper_records_it(log: Writer) -> None:
    log.step("recorded\n", rank=1)
    log.write("not yet\n")
    assert texts(forward(log, 9, over=False)) == ["recorded"]
    assert texts(forward(log, 9, over=True)) == ["recorded", "not yet"]
    os.utime(log.path(0, "stdout"), (time.time() - 60,) * 2)
    assert texts(forward(log, 9, over=False)) == ["recorded", "not yet"]


def test_a_truncated_log_is_read_with_a_note_of_the_removed_bytes(log: Writer, tmp_path: Path) -> None:
    if not can_punch_holes(tmp_path):
        pytest.skip("this file system cannot punch holes")
    for part in range(100):
        log.step("".join(f"line {part * 1000 + number:08}\n" for number in range(1000)))
        LogLimit(1 << 18, lambda: [log.path(0, "stdout")]).apply()
    lines = list(forward(log, 500))
    (gap,) = [line for line in lines if line.removed]
    assert lines[0].text == "line 00000000"
    assert lines[-1].text == "line 00099999"
    assert gap.removed > 1 << 20
    assert backward(log, 500) == lines
    assert len(lines) * 14 > 1 << 17


def test_a_rank_with_a_million_lines_a_minute_and_63_others_are_read_page_by_page(log: Writer) -> None:
    loud = b"".join(b"step %07d loss=0.5\n" % number for number in range(4000))
    for second in range(20):
        for rank in range(1, 64):
            log.write(f"{second} of {rank}\n", rank=rank)
        for _ in range(4):
            log.step(loud)
    with log.open(64) as merged:
        page = merged.before(None, up_to(500), anything)
        assert len(merged.since(log.now - 5, up_to(500), anything).lines) == 500
        silent = merged.before(None, up_to(5), lambda line: line.rank == 63)
    assert page.lines[-1].text == "step 0003999 loss=0.5"
    assert len(page.lines) == 500
    assert texts(silent.lines) == [f"{second} of 63" for second in range(15, 20)]


def test_a_search_that_takes_too_long_stops_and_continues(log: Writer) -> None:
    log.step(b"x" * 1000 + b"\n" + b"y\n" * 10_000)
    log.step("the last\n", rank=1)
    position, pages, found = None, 0, list[TimedLine]()
    complete = False
    while not complete:
        with log.open() as merged:
            page = merged.after(position, ReadLimits(10, seconds=0.01), lambda line: line.text == "the last")
        position, complete, pages, found = page.next, page.complete, pages + 1, found + page.lines
    assert texts(found) == ["the last"]


def test_a_progress_bar_is_its_last_state_and_a_long_line_its_beginning(log: Writer) -> None:
    log.step("\r".join(f"\x1b[A {number}%|###  |" for number in range(2000)) + "\r\n")
    log.step("start " + "x" * 200_000 + "\n")
    log.step(b"\xff\xfe\x1b]0;title\x07caf\xc3\xa9\n")
    bar, long, broken = forward(log, 10)
    assert bar.text == " 1999%|###  |"
    assert long.text.startswith("start xxx")
    assert len(long.text) < 5000
    assert broken.text == "\ufffd\ufffdcafé"


@pytest.mark.parametrize("text", ["", "0-stdout-1", "0-stdin-1-2", "x-stdout-1-2", "0-stdout-1-99999999999999999999"])
def test_a_position_survives_as_text_and_other_text_is_rejected(text: str) -> None:
    position = Position(LogName(3, "stderr"), 5, 9)
    assert Position.parse(str(position)) == position
    with pytest.raises(ValueError, match="no position"):
        Position.parse(text)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("2026-01-01 12:00:00,123 - root - ERROR - boom", LogLevel.ERROR),
        ("Traceback (most recent call last):", LogLevel.ERROR),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory", LogLevel.ERROR),
        ("[W1123 02:00:00.000 socket.cpp:752] [c10d] The client socket has failed", LogLevel.WARNING),
        ("/x.py:3: UserWarning: lr is high", LogLevel.WARNING),
        ("DEBUG:urllib3:hello", LogLevel.DEBUG),
        ("step 3 loss=0.5 errors=0", LogLevel.INFO),
    ],
)
def test_the_level_of_a_line_is_that_of_its_words(text: str, level: LogLevel) -> None:
    assert level_of(text) is level
