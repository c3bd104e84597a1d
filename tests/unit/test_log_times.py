"""The keeper records how the logs grow, in bounded space; a reader gets the order of the bytes from it."""

import json
import os
from pathlib import Path

import pytest

from rekindle.contract.files import read_lines
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.attempt_samples import LogName, LogSizes, valid_sizes
from rekindle.contract.run_dir.paths import AttemptDir, RunDir
from rekindle.keeper.observers import log_growth as observer
from rekindle.keeper.observers.log_growth import LogTimesWriter, merge
from rekindle_service.run_readers.log_timeline import read_log_times

OUT, ERR = LogName(0, "stdout"), LogName(0, "stderr")
ATTEMPT = AttemptInfo(1)


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    found = RunDir(tmp_path)
    for rank in range(2):
        found.attempt(1).rank(rank).root.mkdir(parents=True)
    return found


def write(run_dir: RunDir, text: bytes, log: LogName = OUT) -> None:
    with run_dir.attempt(1).rank(log.rank).log(log.stream).open("ab") as file:
        file.write(text)


def record(directory: AttemptDir, *lines: tuple[float, dict[LogName, int]]) -> None:
    with directory.log_times.open("a") as file:
        file.writelines(json.dumps(LogSizes(at, sizes).to_json()) + "\n" for at, sizes in lines)


def recorded(run_dir: RunDir) -> list[LogSizes]:
    return list(valid_sizes(read_lines(run_dir.attempt(1).log_times)))


def test_only_logs_that_have_grown_are_recorded(run_dir: RunDir) -> None:
    times = LogTimesWriter(run_dir.attempt(1), range(2))
    times.record()
    write(run_dir, b"one\n")
    times.record()
    write(run_dir, b"two\n")
    write(run_dir, b"warning\n", ERR)
    times.record()
    times.record()
    assert [record.sizes for record in recorded(run_dir)] == [{OUT: 4}, {OUT: 8, ERR: 8}]


def test_a_record_that_did_not_fit_on_the_disk_is_written_later(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = LogTimesWriter(run_dir.attempt(1), range(1))
    write(run_dir, b"one\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda _, data: len(data) // 2)
        times.record()
    assert recorded(run_dir) == []
    times.record()
    assert [record.sizes for record in recorded(run_dir)] == [{OUT: 4}]


def test_the_record_of_64_loud_ranks_stays_small_and_its_end_accurate(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "MAX_TIMES_BYTES", 200_000)
    for rank in range(64):
        run_dir.attempt(1).rank(rank).root.mkdir(exist_ok=True)
    times, now = LogTimesWriter(run_dir.attempt(1), range(64)), 1000.0
    sizes = iter(range(1, 1_000_000))
    monkeypatch.setattr(observer, "regular_size", lambda _: next(sizes))
    monkeypatch.setattr(observer.time, "time", lambda: now)
    for _ in range(200):
        times.record()
        now += 0.25
    assert run_dir.attempt(1).log_times.stat().st_size <= 200_000
    kept = recorded(run_dir)
    assert [each.at for each in kept] == sorted(each.at for each in kept)
    assert kept[-1].at - kept[-2].at == 0.25
    assert set(kept[0].sizes) == {LogName(rank, stream) for rank in range(64) for stream in ("stdout", "stderr")}


def test_merged_records_keep_the_order_where_the_clock_was_set_back() -> None:
    records = [LogSizes(at, {OUT: size}) for at, size in ((10.0, 1), (10.2, 2), (3.0, 3), (3.1, 4), (9.0, 5))]
    assert merge(records, 1.0) == [LogSizes(10.2, {OUT: 2}), LogSizes(3.1, {OUT: 4}), LogSizes(9.0, {OUT: 5})]


def test_what_a_job_writes_into_the_record_harms_nobody(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run_dir.attempt(1).log_times
    hostile = [
        {"at": "now", "logs": []},
        {"at": 1.0, "logs": [[0, 2, 5]]},
        {"at": 1.0, "logs": [[-1, 0, 5], [0, 0, True]]},
        {"at": 1.0, "logs": [[0, 0, 1 << 70]]},
        {"at": 1.0, "logs": [[0, 0]]},
        {"at": float("nan"), "logs": []},
        {"at": 2.0, "logs": [[0, 0, 5], [0, 0, 5], [1, 1, 0]]},
    ]
    path.write_text("[]\n\x00\nnull\n" + "".join(json.dumps(line) + "\n" for line in hostile) + '{"at": 3')
    times = read_log_times(run_dir, ATTEMPT)
    assert [times[number] for number in range(len(times))] == [(OUT, 0, 5, 2.0)]
    monkeypatch.setattr(observer, "MAX_TIMES_BYTES", 100)
    write(run_dir, b"x" * 9)
    LogTimesWriter(run_dir.attempt(1), range(1)).record()
    assert path.stat().st_size < 100


def test_bytes_come_in_the_order_of_the_record_and_times_never_decrease(run_dir: RunDir) -> None:
    record(run_dir.attempt(1), (10.0, {OUT: 4}), (5.0, {ERR: 7}), (10.5, {OUT: 9, ERR: 9}))
    times = read_log_times(run_dir, ATTEMPT)
    expected = [(OUT, 0, 4, 10.0), (ERR, 0, 7, 10.0), (ERR, 7, 9, 10.5), (OUT, 4, 9, 10.5)]
    assert [times[number] for number in range(len(times))] == expected
    assert [times.number_at(OUT, offset) for offset in (0, 3, 4, 8, 9)] == [0, 0, 3, 3, None]
    assert list(times.numbers([ERR])) == [1, 2]
    assert times.number_since(10.1) == 2
    assert times.history(OUT, 3, 5) == [(4, 10.0), (9, 10.5)]
    assert times.history(OUT, 4, 5) == [(9, 10.5)]


def test_a_reader_continues_where_it_was_and_begins_again_after_a_merge(run_dir: RunDir) -> None:
    directory = run_dir.attempt(1)
    record(directory, (1.0, {OUT: 1}))
    first = read_log_times(run_dir, ATTEMPT)
    record(directory, (2.0, {OUT: 2}))
    with directory.log_times.open("a") as file:
        file.write('{"at": 3.0, "logs": [[0, 0,')
    assert read_log_times(run_dir, ATTEMPT) is first
    assert len(first) == 2
    replacement = directory.root / "new"
    replacement.write_text(json.dumps(LogSizes(2.0, {OUT: 2}).to_json()) + "\n")
    replacement.replace(directory.log_times)
    assert len(read_log_times(run_dir, ATTEMPT)) == 1


def test_the_records_of_several_machines_are_one(run_dir: RunDir) -> None:
    directory, other = run_dir.attempt(1), LogName(1, "stdout")
    for node, log, at in ((0, OUT, 2.0), (1, other, 1.0)):
        directory.log_times_of(node).write_text(json.dumps(LogSizes(at, {log: 5}).to_json()) + "\n")
    times = read_log_times(run_dir, AttemptInfo(1, hosts=["a", "b"]))
    assert [times[number].log for number in range(2)] == [other, OUT]
