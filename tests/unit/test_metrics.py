import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle_service.run_readers.metric_series import DownsampledSeries, Point, read_metric_lines, read_series


def points(values: list[float | None]) -> list[Point]:
    return [Point(step, 0, float(step), value) for step, value in enumerate(values)]


def downsampled(values: list[float | None], max_points: int) -> list[Point]:
    series = DownsampledSeries(max_points)
    for point in points(values):
        series.add(point)
    return series.points()


def test_a_short_series_is_left_as_it_is_and_a_long_one_keeps_points_all_along() -> None:
    assert downsampled([3.0, 1.0, None, 2.0], 10) == points([3.0, 1.0, None, 2.0])
    steps = [point.step for point in downsampled([float(i % 7) for i in range(100_000)], 300)]
    assert len(steps) > 60
    assert max(later - earlier for earlier, later in itertools.pairwise(steps)) < 3000


@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), max_size=600), st.integers(4, 50))
def test_downsampling_keeps_the_extremes_the_gaps_the_last_point_and_the_bound(
    values: list[float | None], max_points: int
) -> None:
    kept = downsampled(values, max_points)
    assert len(kept) <= max_points
    assert [point.step for point in kept] == sorted({point.step for point in kept})
    assert set(kept) <= set(points(values))
    finite = [value for value in values if value is not None]
    if finite:
        shown = [point.value for point in kept if point.value is not None]
        assert (min(shown), max(shown)) == (min(finite), max(finite))
    if values:
        assert kept[-1].step == len(values) - 1
        assert (None in values) == (None in [point.value for point in kept])


def write(path: Path, *lines: object) -> None:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))


def test_series_are_read_by_name_and_nonsense_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    good = {"step": 1, "epoch": None, "at": 5.0, "values": {"loss": 0.5, "acc": None, "name": "text"}}
    write(
        path,
        good,
        "not json",
        "[1, 2]",
        '{"step": 1e999, "epoch": 0, "at": 1, "values": {}}',
        {**good, "step": "2"},
        {**good, "step": 1 << 70},
        {**good, "at": "NaN"},
        {**good, "values": 3},
        "[" * 5000,
        '{"step": 3, "epoch": 1, "at": 6, "values": {"loss": NaN}}',
    )
    series = read_series(tmp_path, path, names=None, max_points=100)
    assert series == {
        "loss": [Point(1, None, 5.0, 0.5), Point(3, 1, 6.0, None)],
        "acc": [Point(1, None, 5.0, None)],
        "name": [Point(1, None, 5.0, None)],
    }
    assert list(read_series(tmp_path, path, names={"acc"}, max_points=100)) == ["acc"]


def test_an_unfinished_line_waits_and_reading_continues_after_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    line = json.dumps({"step": 1, "epoch": 0, "at": 1.0, "values": {"loss": 1.0}}) + "\n"
    path.write_text(line + line[:20])
    (first,) = read_metric_lines(tmp_path, path, 0)
    path.write_text(line + line)
    (second,) = read_metric_lines(tmp_path, path, first.end)
    assert (first.end, second.end) == (len(line), 2 * len(line))


def test_a_line_without_end_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with path.open("wb") as file:
        file.truncate(1 << 25)
        file.seek(1 << 25)
        file.write(b'\n{"step": 1, "epoch": 0, "at": 1, "values": {"loss": 1}}\n')
    assert [line.step for line in read_metric_lines(tmp_path, path, 0)] == [1]


@pytest.mark.parametrize(
    "plant",
    [lambda path: path.symlink_to(path.with_name("secret")), os.mkfifo, Path.mkdir, lambda path: None],
    ids=["link", "fifo", "directory", "absent"],
)
def test_only_a_regular_file_is_read(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    write(tmp_path / "secret", {"step": 1, "epoch": 0, "at": 1.0, "values": {"loss": 1.0}})
    path = tmp_path / "metrics.jsonl"
    plant(path)
    assert list(read_metric_lines(tmp_path, path, 0)) == []
