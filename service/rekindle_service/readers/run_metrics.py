"""The metrics of a whole job: every attempt's, put together as if it had never failed."""

from functools import lru_cache
from pathlib import Path

from rekindle.contract.layout import RunDir
from rekindle_service.readers.attempt_metrics import metric_files
from rekindle_service.readers.metric_reader import Point, read_series
from rekindle_service.readers.rank_reader import read_attempts

_MOST_POINTS = 2000  # of a series; lows, highs and the last are always among them

Series = dict[str, list[Point]]


def read_run_series(run_dir: RunDir) -> Series:
    """The series by metric; of steps that a later attempt has done again, only the later values."""
    files = [file for number in sorted(read_attempts(run_dir)) for file in metric_files(run_dir, number)]
    return _joined(run_dir.root, tuple((file, _version(file)) for file in files))


def _version(file: Path) -> tuple[int, int] | None:
    try:
        told = file.lstat()
    except OSError:
        return None
    return told.st_mtime_ns, told.st_size


@lru_cache(maxsize=256)
def _joined(root: Path, files: tuple[tuple[Path, object], ...]) -> Series:
    """Kept for the next look, as long as no file has changed: an experiment is looked at every second."""
    series: Series = {}
    for file, _ in files:
        for name, points in read_series(root, file, names=None, max_points=_MOST_POINTS).items():
            first = points[0].step if points else 0
            series[name] = [point for point in series.get(name, []) if point.step < first] + points
    return series
