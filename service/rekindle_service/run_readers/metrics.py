"""Metric series of an attempt, thinned while reading so that memory stays flat, however long the run."""

import json
import math
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rekindle_service.run_readers.safe_open import open_regular

_LONGEST_LINE = 1 << 20  # bytes: metrics by the thousand; a job may write anything here
_MOST_NAMES = 200
_MOST_LISTED = 20_000


class Point(NamedTuple):
    """One value; None stands for one that was not finite."""

    step: int
    epoch: int | None
    at: float  # seconds since the epoch
    value: float | None


class MetricLine(NamedTuple):
    """One line of ``metrics.jsonl``; ``end`` is the byte offset behind it."""

    step: int
    epoch: int | None
    at: float
    values: dict[str, float | None]
    end: int


class ThinnedSeries:
    """At most ``max_points`` points of a series of any length that still show its shape.

    Neighbouring points share a bucket, of which the lowest, the highest and one not finite are kept, so a spike or a
    NaN never disappears; when there are too many buckets, pairs are merged. The last point is always kept.
    """

    def __init__(self, max_points: int) -> None:
        self._most_buckets = max((max_points - 1) // 3, 1)
        self._max_points = max_points
        self._all: list[Point] | None = []
        self._buckets: list[list[Point]] = []
        self._width = 1
        self._filled = 0
        self._last: Point | None = None

    def add(self, point: Point) -> None:
        self._last = point
        if self._all is not None:
            self._all.append(point)
            if len(self._all) > self._max_points:
                self._start_thinning(self._all)
            return
        self._put(point)

    def points(self) -> list[Point]:
        if self._all is not None:
            return list(self._all)
        kept = [point for bucket in self._buckets for point in bucket]
        if self._last is not None and kept[-1] is not self._last:
            kept.append(self._last)
        return kept[-self._max_points :]

    def _start_thinning(self, points: list[Point]) -> None:
        self._all = None
        for point in points:
            self._put(point)

    def _put(self, point: Point) -> None:
        if not self._buckets or self._filled == self._width:
            if len(self._buckets) == self._most_buckets:
                self._merge_pairs()
            if self._filled == self._width or not self._buckets:
                self._buckets.append([])
                self._filled = 0
        self._buckets[-1] = _extremes([*self._buckets[-1], point])
        self._filled += 1

    def _merge_pairs(self) -> None:
        pairs = [self._buckets[i : i + 2] for i in range(0, len(self._buckets), 2)]
        self._filled = self._width * len(pairs[-1])
        self._width *= 2
        self._buckets = [_extremes([point for bucket in pair for point in bucket]) for pair in pairs]


def _extremes(points: list[Point]) -> list[Point]:
    """The lowest, the highest and the first point without a value, in their order."""
    finite = [(point.value, index) for index, point in enumerate(points) if point.value is not None]
    chosen = {index for _, index in (min(finite), max(finite))} if finite else set()
    chosen.update([index for index, point in enumerate(points) if point.value is None][:1])
    return [points[index] for index in sorted(chosen)]


class NewestValue(NamedTuple):
    """The latest value of a metric; None stands for one that was not finite."""

    step: int
    value: float | None


def read_newest(root: Path, path: Path) -> dict[str, NewestValue]:
    """The newest value of every metric in the file at ``path`` beneath ``root``, of at most 20,000 metrics."""
    newest: dict[str, NewestValue] = {}
    for line in read_metric_lines(root, path, 0):
        for metric, value in line.values.items():
            if metric in newest or len(newest) < _MOST_LISTED:
                newest[metric] = NewestValue(line.step, value)
    return newest


def read_series(root: Path, path: Path, *, names: Collection[str] | None, max_points: int) -> dict[str, list[Point]]:
    """The series in the metrics file at ``path`` beneath ``root``, by metric name; only ``names`` where they are given.

    Without names, of the first 200 metrics.
    """
    series: dict[str, ThinnedSeries] = {}
    for line in read_metric_lines(root, path, 0):
        for metric, value in line.values.items():
            if names is not None and metric not in names:
                continue
            if metric not in series and len(series) == _MOST_NAMES:
                continue
            series.setdefault(metric, ThinnedSeries(max_points)).add(Point(line.step, line.epoch, line.at, value))
    return {metric: thinned.points() for metric, thinned in series.items()}


def read_metric_lines(root: Path, path: Path, offset: int) -> Iterator[MetricLine]:
    """Every complete, well-formed line from byte ``offset`` on; others are passed over."""
    file = open_regular(root, path)
    if file is None:
        return
    with file:
        file.seek(offset)
        for raw, end in _bounded_lines(file, offset):
            line = _parsed(raw, end)
            if line is not None:
                yield line


def _bounded_lines(file: BinaryIO, offset: int) -> Iterator[tuple[bytes, int]]:
    """Complete lines with the offset behind each; of one longer than the bound only the end comes, never the whole."""
    while raw := file.readline(_LONGEST_LINE):
        offset += len(raw)
        if raw.endswith(b"\n"):
            yield raw, offset


def _parsed(raw: bytes, end: int) -> MetricLine | None:
    try:
        value = json.loads(raw)
        step, epoch, at, values = value["step"], value["epoch"], float(value["at"]), value["values"]
        if not _is_count(step) or not (epoch is None or _is_count(epoch)) or not math.isfinite(at):
            return None
        return MetricLine(step, epoch, at, {_name(key): _number(item) for key, item in values.items()}, end)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


def _name(key: str) -> str:
    return key[:200].encode(errors="replace").decode()


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
