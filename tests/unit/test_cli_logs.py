"""How `rekindle logs` prints lines, and which drawings of a progress bar it shows."""

from typing import Any

import pytest

from rekindle_service.cli.commands.follow import TextPrinter, collapse_redraws, header
from rekindle_service.client import AttemptHeader, LogLine
from rekindle_service.client.log_follower import LineBuffer


def test_a_line_is_sanitized_and_a_raw_one_is_what_the_script_wrote(capfdbinary: Any) -> None:
    TextPrinter(raw=False, prefixed=True, coloured=False).write(LogLine(1, "stdout", b"\x1b[31mred\xff\n"))
    assert capfdbinary.readouterr().out == "[rank 1] red\ufffd\n".encode()
    TextPrinter(raw=True, prefixed=False, coloured=False).write(LogLine(1, "stdout", b"\x1b[31mred\xff\r\n"))
    assert capfdbinary.readouterr().out == b"\x1b[31mred\xff\r\n"


def test_every_rank_has_its_prefix_and_on_a_terminal_its_colour(capsys: pytest.CaptureFixture[str]) -> None:
    printer = TextPrinter(raw=False, prefixed=True, coloured=True)
    printer.write(LogLine(0, "stdout", b"a\n"))
    printer.write(LogLine(1, "stderr", b"b\n"))
    printer.write(LogLine(11, "stdout", b"c\n"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "\x1b[36m[rank 0]\x1b[0m a"
    assert lines[1] == "\x1b[33m[rank 1]\x1b[0m \x1b[2mb\x1b[0m"
    assert lines[2].startswith("\x1b[33m[rank 11]")


def test_the_header_of_the_first_attempt_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    printer = TextPrinter(raw=False, prefixed=True, coloured=False)
    printer.write(AttemptHeader(1, None))
    printer.write(AttemptHeader(2, 120))
    assert capsys.readouterr().out == "── attempt 2, resumed from step 120 ──\n"


def text(item: LogLine | AttemptHeader) -> str:
    return header(item) if isinstance(item, AttemptHeader) else f"{item.rank} {item.text}"


def bar(*drawings: bytes, rank: int = 0) -> list[LogLine]:
    """What tqdm writes to standard error, as it comes in lines."""
    buffer = LineBuffer()
    lines = buffer.feed(b"".join(b"\r" + drawing for drawing in drawings))
    return [LogLine(rank, "stderr", raw) for raw in [*lines, buffer.flush()] if raw]


def test_of_a_progress_bar_the_last_drawing_stays_and_lines_between_two_ranks_bars_are_kept() -> None:
    lines = [
        *bar(b"10%", b"20%", b"100%\n"),
        *bar(b" 5%", b" 6%", b"      ", rank=1),
        LogLine(1, "stdout", b"epoch 1\n"),
    ]
    shown = collapse_redraws([AttemptHeader(1, None), *lines, *bar(b"1%", b"2%\r"), AttemptHeader(2, 5)], follow=False)
    assert [text(item) for item in shown] == [
        "── attempt 1 ──",
        "0 100%",
        "1       ",
        "1 epoch 1",
        "0 2%",
        "── attempt 2, resumed from step 5 ──",
    ]


def test_a_bar_within_another_one_is_drawn_over_too() -> None:
    inner = b"".join(b"\n\rbatch %d%%\x1b[A" % percent for percent in range(5))
    buffer = LineBuffer()
    lines = buffer.feed(b"\repoch 1" + inner + b"\repoch 2\nend\n")
    shown = collapse_redraws([LogLine(0, "stderr", raw) for raw in lines], follow=False)
    assert [text(item) for item in shown] == ["0 epoch 1", "0 epoch 2", "0 end"]


def test_following_a_progress_bar_shows_it_every_few_seconds_and_its_end() -> None:
    times = iter(range(1000))
    lines = bar(*(b"%d" % part for part in range(100)), b"done\n")
    shown = [
        item.text
        for item in collapse_redraws(lines, follow=True, clock=lambda: next(times) / 10)
        if isinstance(item, LogLine)
    ]
    assert shown[0] == "0"
    assert shown[-1] == "done"
    assert 2 < len(shown) < 10
