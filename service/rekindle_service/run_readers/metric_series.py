"""Metrics of an attempt and of a whole job, wherever they come from: reported, logged for TensorBoard, or printed.

Series are downsampled while they are read, so that memory stays flat, however long the run.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rekindle.contract.files import json_lines
from rekindle.contract.job_options import MAX_RANKS
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import file_version
from rekindle_service.run_readers.log_files import open_or_empty, size_of
from rekindle_service.run_readers.rank_rows import RANK_ZERO, attempt_numbers

_MAX_LINE = 1 << 20  # bytes: metrics by the thousand; a job may write anything here
_MAX_BYTES = 64 << 20  # of a file that are read for its series: about a second
_PART = 1 << 20  # bytes
_MAX_SERIES = 200
_MAX_NAMES = 20_000
_MAX_RUN_POINTS = 2000  # of a run's series; lows, highs and the last are always among them
_MAX_CACHED_POINTS = 250_000  # of about 200 bytes each
_RUN_OVERHEAD = 20  # points that take as much memory as the paths of a run


class Point(NamedTuple):
    """One value; None stands for one that was not finite."""

    step: int
    epoch: int | None
    at: float  # seconds since the epoch
    value: float | None


def downsample(points: list[Point], max_points: int) -> list[Point]:
    """Choose up to ``max_points`` of the points, as ``DownsampledSeries`` does."""
    if len(points) <= max_points:
        return points
    series = DownsampledSeries(max_points)
    for point in points:
        series.add(point)
    return series.points()


class DownsampledSeries:
    """Up to ``max_points`` points of a series, however many are added.

    Neighbouring points share a bucket, of which the lowest, the highest and one not finite are kept, so a spike or a
    NaN never disappears; when there are too many buckets, pairs are merged. The last point is always kept.
    """

    def __init__(self, max_points: int) -> None:
        self._max_points = max_points
        self._max_buckets = max((max_points - 1) // 3, 1)  # once a bucket stands for several points
        self._buckets: list[list[Point]] = []
        self._width = self._filled = 1  # points that a bucket, and the last one, stand for
        self._last: Point | None = None

    def add(self, point: Point) -> None:
        self._last = point
        if self._filled == self._width:
            self._buckets.append([])
            self._filled = 0
        self._buckets[-1] = _extremes([*self._buckets[-1], point])
        self._filled += 1
        if len(self._buckets) > (self._max_points if self._width == 1 else self._max_buckets):
            while len(self._buckets) > self._max_buckets:
                self._merge_pairs()

    def points(self) -> list[Point]:
        kept = [point for bucket in self._buckets for point in bucket]
        if self._last is not None and kept[-1] is not self._last:
            kept.append(self._last)
        return kept[-self._max_points :]

    def _merge_pairs(self) -> None:
        pairs = [self._buckets[i : i + 2] for i in range(0, len(self._buckets), 2)]
        self._filled += self._width * (len(pairs[-1]) - 1)
        self._width *= 2
        self._buckets = [_extremes([point for bucket in pair for point in bucket]) for pair in pairs]


def _extremes(points: list[Point]) -> list[Point]:
    """The lowest, the highest and the first point without a value, in their order."""
    finite = [(point.value, index) for index, point in enumerate(points) if point.value is not None]
    chosen = {index for _, index in (min(finite), max(finite))} if finite else set()
    chosen.update([index for index, point in enumerate(points) if point.value is None][:1])
    return [points[index] for index in sorted(chosen)]


Series = dict[str, list[Point]]

_Files = tuple[tuple[tuple[Path, object], ...], ...]  # by attempt, each with its version


class PrintedAt(NamedTuple):
    """Where in a log the line with a value begins."""

    rank: int
    stream: str
    offset: int


class MetricLine(NamedTuple):
    """One line of a metrics file; ``end`` is the byte offset after it."""

    step: int
    epoch: int | None
    at: float  # seconds since the epoch
    values: dict[str, float | None]
    end: int
    printed: PrintedAt | None = None  # of a value that was read from the output


def metric_files(run_dir: RunDir, attempt: int) -> list[Path]:
    """Where an attempt's metrics are; the last of these files wins where a name is in several."""
    attempt_dir = run_dir.attempt(attempt)
    return [attempt_dir.printed, attempt_dir.scalars, attempt_dir.rank(RANK_ZERO).metrics]


def read_metric_lines(root: Path, path: Path, offset: int) -> Iterator[MetricLine]:
    """Every complete, well-formed line from byte ``offset`` on of the file at ``path`` beneath ``root``."""
    with open_or_empty(root, path) as file:
        yield from _lines(file, offset, None)


def _lines(file: BinaryIO, begin: int, end: int | None) -> Iterator[MetricLine]:
    for offset, value in json_lines(file, begin, max_line=_MAX_LINE, end=end):
        if (line := _parse(value, offset)) is not None:
            yield line


def _sampled_lines(root: Path, path: Path) -> Iterator[MetricLine]:
    """The lines of a file, of one beyond 64 MiB those in evenly spaced parts, so that no request takes minutes."""
    with open_or_empty(root, path) as file:
        for begin, end in _parts(size_of(file)):
            yield from _lines(file, begin, end)


def _parts(size: int) -> list[tuple[int, int | None]]:
    """Where to read in a file of ``size`` bytes; a part may begin within a line, which is then no line."""
    if size <= _MAX_BYTES:
        return [(0, None)]
    count = _MAX_BYTES // _PART
    begins = [index * (size - _PART) // (count - 1) for index in range(count)]
    return [(begin, begin + _PART) for begin in begins]


def read_series(root: Path, path: Path, *, names: Collection[str] | None, max_points: int) -> Series:
    """The series in one file by metric; only ``names`` where they are given, else of the first 200 metrics."""
    series: dict[str, DownsampledSeries] = {}
    for line in _sampled_lines(root, path):
        for metric, value in line.values.items():
            if names is not None and metric not in names:
                continue
            if metric not in series and len(series) == _MAX_SERIES:
                continue
            series.setdefault(metric, DownsampledSeries(max_points)).add(Point(line.step, line.epoch, line.at, value))
    return {metric: downsampled.points() for metric, downsampled in series.items()}


def read_attempt_series(run_dir: RunDir, attempt: int, *, names: Collection[str] | None, max_points: int) -> Series:
    """The series of an attempt by metric; see ``read_series``."""
    series: Series = {}
    for path in metric_files(run_dir, attempt):
        series |= read_series(run_dir.root, path, names=names, max_points=max_points)
    return series


class LatestValue(NamedTuple):
    """The latest value of a metric, and its line where it was printed."""

    step: int
    epoch: int | None
    value: float | None
    printed: PrintedAt | None


def read_attempt_latest(run_dir: RunDir, attempt: int) -> dict[str, LatestValue]:
    """The latest value of every metric of an attempt, of at most 20,000 metrics of each file."""
    latest: dict[str, LatestValue] = {}
    for path in metric_files(run_dir, attempt):
        of_file: dict[str, LatestValue] = {}
        for line in _sampled_lines(run_dir.root, path):
            for metric, value in line.values.items():
                if metric in of_file or len(of_file) < _MAX_NAMES:
                    of_file[metric] = LatestValue(line.step, line.epoch, value, line.printed)
        latest |= of_file
    return latest


def read_run_series(run_dir: RunDir) -> Series:
    """The series of all attempts, joined as if the job had never failed: the values of replayed steps are omitted."""
    attempts = [metric_files(run_dir, number) for number in attempt_numbers(run_dir)]
    versions = tuple(tuple((file, file_version(file)) for file in files) for files in attempts)
    return _cache.get(run_dir.root, versions)


class SeriesCache:
    """The series of runs as they were last read: the page of an experiment asks every second.

    Of a run only the latest version, since a running job has another one each time. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[Path, tuple[_Files, Series]] = OrderedDict()  # the last one used comes last
        self._points = 0

    def get(self, root: Path, files: _Files) -> Series:
        with self._lock:
            if root in self._runs:
                self._runs.move_to_end(root)
                version, series = self._runs[root]
                if version == files:
                    return series
        series = _join(root, files)
        with self._lock:
            self._discard(root)
            self._runs[root] = files, series
            self._points += _size(series)
            while self._points > _MAX_CACHED_POINTS:
                self._discard(next(iter(self._runs)))
        return series

    def _discard(self, root: Path) -> None:
        if root in self._runs:
            self._points -= _size(self._runs.pop(root)[1])


_cache = SeriesCache()


def _size(series: Series) -> int:
    """In points; a run without any takes memory, too."""
    return _RUN_OVERHEAD + sum(len(points) for points in series.values())


def _join(root: Path, files: _Files) -> Series:
    series: Series = {}
    for of_attempt in files:
        latest: Series = {}
        for file, _ in of_attempt:
            latest |= read_series(root, file, names=None, max_points=_MAX_RUN_POINTS)
        for name, points in latest.items():
            first = points[0].step if points else 0
            series[name] = [point for point in series.get(name, []) if point.step < first] + points
    return series


def _parse(value: dict[str, Any], end: int) -> MetricLine | None:
    """Values that are no finite number are None, so that one of them does not hide the others."""
    try:
        step, epoch, at, values = value["step"], value["epoch"], float(value["at"]), value["values"]
        if not _is_count(step) or not (epoch is None or _is_count(epoch)) or not math.isfinite(at):
            return None
        numbers = {_name(key): _number(item) for key, item in values.items()}
        return MetricLine(step, epoch, at, numbers, end, _printed(value.get("line")))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _printed(value: Any) -> PrintedAt | None:
    match value:
        case [int(rank), "stdout" | "stderr" as stream, int(offset)] if 0 <= rank < MAX_RANKS and _is_offset(offset):
            return PrintedAt(rank, stream, offset)
    return None


def _is_offset(value: int) -> bool:
    return 0 <= value <= 1 << 53


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


def _name(key: str) -> str:
    return key[:200].encode(errors="replace").decode()


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
