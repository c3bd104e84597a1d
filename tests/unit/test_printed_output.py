"""Lines of many ranks and floods of them become bounded curves, which cost the ranks nothing."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from rekindle.contract.run_dir.paths import AttemptDir
from rekindle.keeper.observers import printed_output
from rekindle.keeper.observers.printed_output import LAST_MAX_LINES, MAX_BYTES, MAX_LINES, PrintedOutput, sample_lines


@pytest.fixture
def attempt_dir(tmp_path: Path) -> AttemptDir:
    return AttemptDir(tmp_path)


def write(attempt_dir: AttemptDir, text: str, rank: int = 0, stream: str = "stdout") -> None:
    log = attempt_dir.rank(rank).log(stream)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        file.write(text)


def points(attempt_dir: AttemptDir) -> list[dict[str, Any]]:
    return [json.loads(line) for line in attempt_dir.printed.read_bytes().splitlines()]


def curve(attempt_dir: AttemptDir, name: str) -> list[tuple[int, float | None]]:
    return [(point["step"], point["values"][name]) for point in points(attempt_dir) if name in point["values"]]


def test_each_point_names_the_line_that_it_was_read_from(attempt_dir: AttemptDir) -> None:
    write(attempt_dir, "hello\n", stream="stderr")
    write(attempt_dir, "".join(f"step {step} loss {step}.5\r" for step in range(4)), stream="stderr")
    write(attempt_dir, "step 4 loss nan", stream="stderr")
    output = PrintedOutput(attempt_dir, [0])
    output.read()
    assert curve(attempt_dir, "loss") == [(step, step + 0.5) for step in range(4)]
    output.read(ended=True)
    assert curve(attempt_dir, "loss")[-1] == (4, None)
    text = attempt_dir.rank(0).log("stderr").read_text()
    for point in points(attempt_dir):
        rank, stream, offset = point["line"]
        assert (rank, stream) == (0, "stderr")
        assert text[offset:].startswith(f"step {point['step']} ")


def test_rank_0_counts_first_and_then_the_lowest_rank(attempt_dir: AttemptDir) -> None:
    for rank in (0, 2, 3):
        write(attempt_dir, "".join(f"step {step} loss {rank}.5\n" for step in range(4)), rank)
    for rank in (2, 3):
        write(attempt_dir, "".join(f"step {step} acc {rank}.5\n" for step in range(4)), rank)
    output = PrintedOutput(attempt_dir, range(4))
    for _ in range(3):
        output.read()
    assert curve(attempt_dir, "loss") == [(step, 0.5) for step in range(4)]
    assert curve(attempt_dir, "acc") == [(step, 2.5) for step in range(4)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_rank_that_prints_later_counts_from_then_on(attempt_dir: AttemptDir, order: tuple[int, int]) -> None:
    output = PrintedOutput(attempt_dir, range(2))
    for rank, steps in zip(order, (range(4), range(4, 9)), strict=True):
        write(attempt_dir, "".join(f"step {step} loss {rank}.5\n" for step in steps), rank)
        output.read()
    expected = [(step, 0.5) for step in range(4)]
    if order == (1, 0):
        expected = [(step, 1.5) for step in range(4)] + [(step, 0.5) for step in range(4, 9)]
    assert curve(attempt_dir, "loss") == expected


def test_of_a_flood_the_rare_lines_are_read_and_the_copy_is_bounded(attempt_dir: AttemptDir) -> None:
    output = PrintedOutput(attempt_dir, [0])
    for epoch in range(1, 9):
        steps = range(epoch * 5000, epoch * 5000 + 5000)
        write(attempt_dir, "".join(f"step {step} loss 0.5 and more of it\n" for step in steps))
        write(attempt_dir, f"Epoch {epoch} val loss {epoch}.5\n")
        write(attempt_dir, "".join(f"step {step} loss 0.5 and more of it\n" for step in steps[:100]))
        output.read()
    assert [value for _, value in curve(attempt_dir, "val_loss")] == [epoch + 0.5 for epoch in range(1, 9)]
    assert len(points(attempt_dir)) <= 8 * MAX_LINES


def test_points_become_rare_but_the_last_is_kept(attempt_dir: AttemptDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed_output, "_ALL_POINTS", 10)
    output = PrintedOutput(attempt_dir, [0])
    output._started_at -= 10_000
    for step in range(30):
        write(attempt_dir, f"step {step} loss 0.5\n")
        output.read()
    write(attempt_dir, "step 30 loss nan\n")
    output.read()
    write(attempt_dir, "step 31 loss 0.5\nstep 32 loss 0.25\n")
    output.read(ended=True)
    steps = [step for step, _ in curve(attempt_dir, "loss")]
    assert steps[:10] == list(range(10))
    assert steps[-3:] == [30, 31, 32]
    assert len(steps) < 16


def test_a_table_of_which_rows_were_skipped_is_no_table(attempt_dir: AttemptDir) -> None:
    tables = "".join(
        "--------------------\n" + "".join(f"| loss{row} | {step}.5 |\n" for row in range(40)) + f"| step | {step} |\n"
        for step in range(200)
    )
    write(attempt_dir, tables + "--------------------\n")
    PrintedOutput(attempt_dir, [0]).read()
    assert all(point["values"].keys() == {"loss"} or point["step"] + 0.5 in point["values"].values()
               for point in (points(attempt_dir) if attempt_dir.printed.exists() else []))  # fmt: skip


def test_only_the_latest_bytes_of_a_flood_are_read(attempt_dir: AttemptDir) -> None:
    write(attempt_dir, "step 1 loss 1.5\n" * 3 + "." * 2 * MAX_BYTES + "\n" + "step 2 loss 2.5\n" * 3)
    PrintedOutput(attempt_dir, [0]).read()
    assert curve(attempt_dir, "loss") == [(2, 2.5)] * 3


def test_nothing_is_copied_without_the_option_or_for_nothing_that_counts(attempt_dir: AttemptDir) -> None:
    write(attempt_dir, "step 1 loss 1.5\nstep 2 loss 2.5\nstep 3 loss 3.5\n")
    output = PrintedOutput(attempt_dir, [0], copies=False)
    output.read(ended=True)
    assert output.step == 3
    assert not attempt_dir.printed.exists()


@pytest.mark.parametrize("content", [b"", b"\0" * 100_000, os.urandom(300_000), b"\r" * 1000, b"x" * 1_000_000])
def test_any_content_is_survived(attempt_dir: AttemptDir, content: bytes) -> None:
    write(attempt_dir, "")
    attempt_dir.rank(0).log("stdout").write_bytes(content)
    output = PrintedOutput(attempt_dir, [0, 1])
    for ended in (False, True):
        output.read(ended=ended)
    assert not attempt_dir.printed.exists()


def test_a_log_that_is_no_file_is_not_opened(attempt_dir: AttemptDir) -> None:
    log = attempt_dir.rank(0).log("stdout")
    log.parent.mkdir(parents=True)
    os.mkfifo(log)
    attempt_dir.rank(0).log("stderr").symlink_to("/etc/passwd")
    PrintedOutput(attempt_dir, [0]).read(ended=True)


def test_the_next_reading_waits_as_long_as_this_one_was_expensive(attempt_dir: AttemptDir) -> None:
    output = PrintedOutput(attempt_dir, [0])
    write(attempt_dir, "step 1 loss 0.5 acc 0.5 lr 0.5\n" * LAST_MAX_LINES)
    begun = time.thread_time()
    output.read_if_due()
    used = time.thread_time() - begun
    assert output._next_read >= time.monotonic() + 150 * used - 1


def test_a_sample_has_every_kind_of_line_in_order() -> None:
    data = b"".join(b"step %d\n" % number + (b"end\n" if number % 100 == 0 else b"") for number in range(1000))
    sampled = list(sample_lines(data, 50))
    assert len(sampled) <= 50
    assert [line for _, _, line in sampled].count(b"end") == 10
    assert [offset for _, offset, _ in sampled] == sorted(offset for _, offset, _ in sampled)
    assert all(data[offset:].startswith(line) for _, offset, line in sampled)
