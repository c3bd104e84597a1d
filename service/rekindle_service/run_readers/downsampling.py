"""Metric series of any length as a bounded number of points that still show their shape."""

from typing import NamedTuple


class Point(NamedTuple):
    """One value; None stands for one that was not finite."""

    step: int
    epoch: int | None
    at: float  # seconds since the epoch
    value: float | None


def downsample(points: list[Point], max_points: int) -> list[Point]:
    """At most ``max_points`` of them, as ``DownsampledSeries`` chooses."""
    if len(points) <= max_points:
        return points
    series = DownsampledSeries(max_points)
    for point in points:
        series.add(point)
    return series.points()


class DownsampledSeries:
    """At most ``max_points`` points of a series, however many are added.

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
