import gc
from pathlib import Path

import pytest

from rekindle.contract.files import append_line
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.run_readers import metric_series
from rekindle_service.run_readers.metric_series import Point, read_run_series


def points_in_memory() -> int:
    return sum(type(each) is Point for each in gc.get_objects())


def add(run_dir: RunDir, *steps: int) -> None:
    path = run_dir.attempt(1).rank(0).metrics
    path.parent.mkdir(parents=True, exist_ok=True)
    for step in steps:
        append_line(path, {"step": step, "epoch": 0, "at": 1.0, "values": {"loss": float(step)}}, durable=False)


def test_only_the_latest_series_of_a_running_job_stay_in_memory(tmp_path: Path) -> None:
    run_dir, before = RunDir(tmp_path / "run"), points_in_memory()
    for step in range(50):
        add(run_dir, step)
        assert len(read_run_series(run_dir)["loss"]) == step + 1
    assert points_in_memory() - before <= 50


def test_what_has_not_changed_is_not_read_again_until_others_need_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_series, "_cache", metric_series.SeriesCache())
    monkeypatch.setattr(metric_series, "_MAX_CACHED_POINTS", 2 * (metric_series._RUN_OVERHEAD + 4))
    one, other, another = (RunDir(tmp_path / name) for name in ("one", "other", "another"))
    for run_dir in (one, other, another):
        add(run_dir, 1, 2, 3, 4)
    first, second = read_run_series(one), read_run_series(other)
    assert read_run_series(one) is first
    read_run_series(another)  # replaces the one that was read longest ago
    assert read_run_series(one) is first
    assert read_run_series(other) is not second


def test_series_too_long_to_be_kept_are_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_series, "_MAX_CACHED_POINTS", 10)
    run_dir = RunDir(tmp_path / "run")
    add(run_dir, *range(20))
    assert len(read_run_series(run_dir)["loss"]) == len(read_run_series(run_dir)["loss"]) == 20
