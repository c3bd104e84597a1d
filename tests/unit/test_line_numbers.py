"""The number of a line, in logs that grow, in long ones and in those that lost their middle."""

from pathlib import Path

import pytest

from rekindle.contract.files import can_punch_holes
from rekindle.keeper.observers.log_growth import LogLimit
from rekindle_service.run_readers.log_files import line_number


def test_lines_are_numbered_from_one_also_while_the_log_grows(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_bytes(b"".join(b"%09d\n" % number for number in range(300_000)))
    with log.open("rb") as file:
        for offset, number in ((0, 1), (9, 1), (10, 2), (2_999_999, 300_000), (3_000_000, 300_001)):
            assert line_number(log, file, offset) == number
        with log.open("ab") as more:
            more.write(b"next\nlast\n" * 100_000)
        assert line_number(log, file, 4_000_000) == 500_001
        assert line_number(log, file, 15) == 2


def test_after_a_removed_part_no_line_has_a_number(tmp_path: Path) -> None:
    if not can_punch_holes(tmp_path):
        pytest.skip("this file system cannot punch holes")
    log = tmp_path / "stdout.log"
    log.write_bytes(b"line\n" * 500_000)
    LogLimit(1 << 18, lambda: [log]).apply()
    with log.open("rb") as file:
        assert line_number(log, file, 1000) == 201
        assert line_number(log, file, 2_400_000) is None


def test_nobody_waits_for_gigabytes_to_be_counted(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    with log.open("wb") as file:
        file.write(b"x")
        file.truncate(1 << 32)
    with log.open("rb") as file:
        assert line_number(log, file, (1 << 32) - 1) is None
