"""The best snapshot so far, by a metric that the script logs."""

import math
from dataclasses import dataclass

from rekindle.contract.run_dir.rank_records import MetricPoint
from rekindle.contract.score import Score, metric_of


@dataclass(slots=True)
class BestTracker:
    """The same on every rank. ``monitor`` is that of ``SnapshotPolicy``; None where no best snapshot is requested.

    Only what was logged at the very step of a snapshot counts for it: the accuracy of a model is not that of the model
    ten steps later. Raises ValueError where ``monitor`` names no metric.
    """

    monitor: str | None
    best: Score | None = None  # of the best snapshot on disk
    logged: bool = False  # the metric was logged
    _value: float = math.nan
    _step: int = -1  # at which it was logged last

    def __post_init__(self) -> None:
        if self.monitor is not None:
            metric_of(self.monitor)

    def on_logged(self, points: list[MetricPoint]) -> None:
        """``points`` are averaged over the ranks."""
        if self.monitor is None:
            return
        name = metric_of(self.monitor)
        for point in points:
            if (value := point.values.get(name)) is not None:
                self.logged, self._value, self._step = True, value, point.step

    def score_of(self, step: int) -> Score | None:
        """The score of a snapshot of ``step``, the one that was finished last."""
        if self.monitor is None or step != self._step or not math.isfinite(self._value):
            return None
        return Score(self.monitor, self._value)

    def would_be_best(self, step: int) -> bool:
        """A snapshot of ``step`` would be the best."""
        score = self.score_of(step)
        return score is not None and score.is_better_than(self.best)

    def on_saved(self, score: Score | None) -> None:
        """A snapshot of ``score`` is on disk."""
        if score is not None and score.is_better_than(self.best):
            self.best = score
