"""The metrics of a whole job: every attempt's, put together as if it had never failed."""

import threading
from collections import OrderedDict
from pathlib import Path

from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.run_readers.attempt_metrics import metric_files
from rekindle_service.run_readers.metrics import Point, read_series
from rekindle_service.run_readers.ranks import read_attempts

_MOST_POINTS = 2000  # of a series; lows, highs and the last are always among them
_MOST_KEPT = 250_000  # points in all, of about 200 bytes each
_RUN_ITSELF = 20  # points that the paths of a run take as much room as

Series = dict[str, list[Point]]
_Files = tuple[tuple[Path, object], ...]  # each with its version


def read_run_series(run_dir: RunDir) -> Series:
    """The series by metric; of steps that a later attempt has done again, only the later values."""
    files = [file for number in sorted(read_attempts(run_dir)) for file in metric_files(run_dir, number)]
    return _kept.series(run_dir.root, tuple((file, _version(file)) for file in files))


def _version(file: Path) -> tuple[int, int] | None:
    try:
        told = file.lstat()
    except OSError:
        return None
    return told.st_mtime_ns, told.st_size


class _Kept:
    """What was read last, for the next look: an experiment is looked at every second.

    Of a run only the newest version, since a job that runs has another one at every look. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[Path, tuple[_Files, Series]] = OrderedDict()  # the one looked at last comes last
        self._points = 0

    def series(self, root: Path, files: _Files) -> Series:
        with self._lock:
            if root in self._runs:
                self._runs.move_to_end(root)
                version, series = self._runs[root]
                if version == files:
                    return series
        series = _joined(root, files)
        with self._lock:
            self._forget(root)
            self._runs[root] = files, series
            self._points += _size(series)
            while self._points > _MOST_KEPT:
                self._forget(next(iter(self._runs)))
        return series

    def _forget(self, root: Path) -> None:
        if root in self._runs:
            self._points -= _size(self._runs.pop(root)[1])


_kept = _Kept()


def _size(series: Series) -> int:
    """In points; a run without any takes room, too."""
    return _RUN_ITSELF + sum(len(points) for points in series.values())


def _joined(root: Path, files: _Files) -> Series:
    series: Series = {}
    for file, _ in files:
        for name, points in read_series(root, file, names=None, max_points=_MOST_POINTS).items():
            first = points[0].step if points else 0
            series[name] = [point for point in series.get(name, []) if point.step < first] + points
    return series
