"""What a script writes for TensorBoard becomes metrics of the attempt in which it was written."""

import math
import os
import time
from pathlib import Path

import pytest

from event_files import EventFile, event, record, simple
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.observers import tensorboard
from rekindle.keeper.observers.checkpoint_files import walk_files
from rekindle.keeper.observers.tensorboard import TensorBoardImport, prefix_of, writer_of
from rekindle_service.run_readers.metric_series import read_attempt_latest, read_attempt_series

Curves = dict[str, list[tuple[int, float | None]]]


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path)
    run_dir.code.mkdir()
    return run_dir


def attempt(run_dir: RunDir, number: int = 1) -> TensorBoardImport:
    run_dir.attempt(number).root.mkdir(parents=True)
    return TensorBoardImport(run_dir.attempt(number).scalars, (run_dir.code, run_dir.snapshots))


def curves(run_dir: RunDir, number: int = 1) -> Curves:
    """What the API returns, as step and value."""
    series = read_attempt_series(run_dir, number, names=None, max_points=1000)
    return {name: [(point.step, point.value) for point in points] for name, points in series.items()}


def test_scalars_are_copied_wherever_the_files_are(run_dir: RunDir) -> None:
    log = attempt(run_dir)
    EventFile(run_dir.code / "lightning_logs" / "version_3", time.time()).add(1, loss=0.5)
    EventFile(run_dir.snapshots / "logs", time.time() + 1).add(2, score=0.25)
    log.finish([])
    assert curves(run_dir) == {"loss": [(1, 0.5)], "snapshots/logs/score": [(2, 0.25)]}


def test_a_file_is_followed_as_it_grows_and_a_torn_record_is_read_later(run_dir: RunDir, monkeypatch) -> None:
    monkeypatch.setattr(tensorboard, "INTERVAL", 0.0)
    monkeypatch.setattr(tensorboard, "_REST_FACTOR", 0)
    log, file = attempt(run_dir), EventFile(run_dir.code, time.time())
    torn = record(event(3, simple("loss", 0.125)))
    file.add(1, loss=0.5)
    log.copy_if_due([])
    file.add(2, loss=0.25)
    file.add_bytes(torn[:30])
    log.copy_if_due([])
    assert curves(run_dir) == {"loss": [(1, 0.5), (2, 0.25)]}
    file.add_bytes(torn[30:])
    log.finish([])
    assert curves(run_dir) == {"loss": [(1, 0.5), (2, 0.25), (3, 0.125)]}


def test_each_attempt_has_its_own_files_under_the_same_names(run_dir: RunDir) -> None:
    EventFile(run_dir.code / "lightning_logs" / "version_0", time.time() - 60).add(9, loss=9.0)  # came with the code
    for number in (1, 2):
        log = attempt(run_dir, number)
        main = EventFile(run_dir.code / "lightning_logs" / f"version_{number}", time.time())
        main.add(number, loss=0.5)
        EventFile(run_dir.code / "lightning_logs" / f"version_{number}" / "val", time.time()).add(number, loss=0.75)
        log.finish([])
    assert curves(run_dir, 1) == {"loss": [(1, 0.5)], "val/loss": [(1, 0.75)]}
    assert curves(run_dir, 2) == {"loss": [(2, 0.5)], "val/loss": [(2, 0.75)]}


def test_only_regular_files_of_the_first_rank_are_copied(run_dir: RunDir, tmp_path: Path) -> None:
    log = attempt(run_dir)
    EventFile(run_dir.code, time.time(), pid=101).add(1, loss=99.0)
    elsewhere = EventFile(tmp_path / "elsewhere", time.time())
    elsewhere.add(1, loss=1.0)
    (run_dir.code / elsewhere.path.name).symlink_to(elsewhere.path)
    (run_dir.code / "loop").symlink_to(run_dir.code)
    (run_dir.code / "directory").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(run_dir.code / "events.out.tfevents.1.host.1.0")
    log.finish([101])
    assert curves(run_dir) == {}
    assert not run_dir.attempt(1).scalars.exists()
    EventFile(run_dir.code, time.time(), pid=100).add(1, loss=0.5)
    log.finish([101])
    assert curves(run_dir) == {"loss": [(1, 0.5)]}


def test_what_the_script_reports_to_rekindle_itself_takes_precedence(run_dir: RunDir) -> None:
    log = attempt(run_dir)
    EventFile(run_dir.code, time.time()).add(1, loss=0.5, other=1.0)
    own = run_dir.attempt(1).rank(0)
    own.root.mkdir(parents=True)
    own.metrics.write_text('{"step": 7, "epoch": 1, "at": 5.0, "values": {"loss": 0.25}}\n')
    log.finish([])
    assert curves(run_dir) == {"loss": [(7, 0.25)], "other": [(1, 1.0)]}
    assert read_attempt_latest(run_dir, 1)["loss"].value == 0.25


def test_values_steps_and_names_out_of_bounds_are_copied_whole_or_not_at_all(run_dir: RunDir) -> None:
    log, file = attempt(run_dir), EventFile(run_dir.code, time.time())
    odd = "<script>alert(1)</script>\x1b[31m" + "x" * 500
    values = [simple("nan", math.nan), simple("inf", math.inf), simple(odd, 1.0), simple("ok", 3e38)]
    file.add_bytes(record(event(-5, *values, at=math.nan)))
    log.finish([])
    expected = {"nan": None, "inf": None, odd[:200]: 1.0, "ok": pytest.approx(3e38)}
    assert curves(run_dir) == {name: [(-5, value)] for name, value in expected.items()}


def test_thousands_of_names_in_one_step_are_kept(run_dir: RunDir) -> None:
    log, file = attempt(run_dir), EventFile(run_dir.code, time.time())
    for first in range(0, 3000, 500):
        file.add_bytes(record(event(1, *(simple(f"layer.{number}", 1.0) for number in range(first, first + 500)))))
    log.finish([])
    assert len(read_attempt_latest(run_dir, 1)) == 3000
    assert max(map(len, run_dir.attempt(1).scalars.read_bytes().splitlines())) < 64 * 1024


def test_a_copy_that_takes_too_long_is_continued_later_where_it_stopped(run_dir: RunDir, monkeypatch) -> None:
    for name, value in (("INTERVAL", 0.0), ("_REST_FACTOR", 0), ("MAX_SECONDS", 0.0)):
        monkeypatch.setattr(tensorboard, name, value)
    log = attempt(run_dir)
    for number in range(3):
        file = EventFile(run_dir.code / f"run{number}", time.time() + number)
        for step in range(3):
            file.add(step, loss=1.0)
    for _ in range(40):
        log.copy_if_due([])
    assert [[step for step, _ in points] for points in curves(run_dir).values()] == [[0, 1, 2]] * 3


def test_a_damaged_file_hides_none_of_the_others(run_dir: RunDir) -> None:
    log = attempt(run_dir)
    bad, good = EventFile(run_dir.code / "a", time.time()), EventFile(run_dir.code / "b", time.time() + 1)
    bad.add(1, loss=1.0)
    bad.add_bytes(b"\xff" * 40)
    bad.add(2, loss=2.0)
    good.add(1, score=3.0)
    log.finish([])
    assert curves(run_dir) == {"loss": [(1, 1.0)], "b/score": [(1, 3.0)]}


def test_nothing_is_added_to_a_copy_that_is_too_long(run_dir: RunDir, monkeypatch) -> None:
    monkeypatch.setattr(tensorboard, "MAX_BYTES", 10)
    log, file = attempt(run_dir), EventFile(run_dir.code, time.time())
    for step in (1, 2):
        file.add(step, loss=1.0)
        log.finish([])
    assert curves(run_dir) == {"loss": [(1, 1.0)]}


def test_files_of_many_earlier_attempts_hide_none_of_this_one(run_dir: RunDir, monkeypatch) -> None:
    monkeypatch.setattr(tensorboard, "MAX_FILES", 3)
    for number in range(5):
        EventFile(run_dir.code / f"version_{number}", 1.0).add(1, loss=float(number))
    log = attempt(run_dir)
    EventFile(run_dir.code / "new" / "version_5", time.time()).add(1, loss=0.5)  # listed last
    for _ in range(3):
        log.finish([])
    assert curves(run_dir) == {"loss": [(1, 0.5)]}


def test_a_walk_ends_however_many_files_there_are(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"data{number}").write_bytes(b"")
    deep = tmp_path
    for _ in range(30):
        deep = deep / "deep"
    deep.mkdir(parents=True)
    (deep / "unseen").write_bytes(b"")
    assert len(list(walk_files(tmp_path, max_entries=20))) <= 20
    assert len(list(walk_files(tmp_path))) == 50
    assert list(walk_files(tmp_path / "missing")) == []


@pytest.mark.parametrize(
    ("name", "pid"),
    [
        ("events.out.tfevents.1700000000.host.42.0", 42),
        ("events.out.tfevents.1700000000.a.b.c.42.0", 42),
        ("run1.events.out.tfevents.1700000000.host.42.0", 42),
        ("events.out.tfevents.1700000000.host", None),
        ("events.out.tfevents.1700000000.host.x.0", None),
    ],
)
def test_the_name_contains_the_writers_pid(name: str, pid: int | None) -> None:
    assert writer_of(name) == pid


@pytest.mark.parametrize(
    ("directory", "prefix"),
    [
        ("/c/runs/train", ""),
        ("/c/runs/val", "val/"),
        ("/c/runs/train/loss_a", "loss_a/"),
        ("/c/runs", ""),
        ("/d", "d/"),
    ],
)
def test_a_name_begins_with_the_path_from_the_first_directory(directory: str, prefix: str) -> None:
    assert prefix_of(Path(directory), Path("/c/runs/train")) == prefix
