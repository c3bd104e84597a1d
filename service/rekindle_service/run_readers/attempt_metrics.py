"""The metrics of one attempt, from wherever its script has logged them: with rekindle, or for TensorBoard."""

from collections.abc import Collection
from pathlib import Path

from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.run_readers.metrics import NewestValue, Point, read_newest, read_series

_REPORTING_RANK = 0


def metric_files(run_dir: RunDir, attempt: int) -> list[Path]:
    """Lines of metrics; where a name is in several of these files, the last one has the word."""
    folder = run_dir.attempt(attempt)
    return [folder.scalars, folder.rank(_REPORTING_RANK).metrics]


def read_attempt_series(
    run_dir: RunDir, attempt: int, *, names: Collection[str] | None, max_points: int
) -> dict[str, list[Point]]:
    """The series by metric; see ``read_series``."""
    series: dict[str, list[Point]] = {}
    for path in metric_files(run_dir, attempt):
        series |= read_series(run_dir.root, path, names=names, max_points=max_points)
    return series


def read_attempt_newest(run_dir: RunDir, attempt: int) -> dict[str, NewestValue]:
    """The newest value of every metric; see ``read_newest``."""
    newest: dict[str, NewestValue] = {}
    for path in metric_files(run_dir, attempt):
        newest |= read_newest(run_dir.root, path)
    return newest
