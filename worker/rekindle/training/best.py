"""The best snapshot so far, by a metric that the script logs."""

import math
from dataclasses import dataclass

from rekindle.contract.run_dir.rank_records import MetricPoint
from rekindle.contract.score import Score, metric_of


@dataclass(slots=True)
class BestSoFar:
    """Knows the same on every rank. ``by`` is that of ``SnapshotPolicy``; None where nobody wants a best one.

    Only what was logged at the very step of a snapshot speaks for it: the accuracy of a model is not that of the model
    ten steps later. Raises ValueError where ``by`` names no metric.
    """

    by: str | None
    score: Score | None = None  # of the best snapshot on disk
    seen: bool = False  # the metric was logged
    _value: float = math.nan
    _step: int = -1  # at which it was logged last

    def __post_init__(self) -> None:
        if self.by is not None:
            metric_of(self.by)

    def note(self, points: list[MetricPoint]) -> None:
        """Take in what was logged, averaged over the ranks."""
        if self.by is None:
            return
        name = metric_of(self.by)
        for point in points:
            if (value := point.values.get(name)) is not None:
                self.seen, self._value, self._step = True, value, point.step

    def score_of(self, step: int) -> Score | None:
        """What speaks for a snapshot of ``step``, the one that was finished last."""
        if self.by is None or step != self._step or not math.isfinite(self._value):
            return None
        return Score(self.by, self._value)

    def beaten_at(self, step: int) -> bool:
        """A snapshot of ``step`` would be the best."""
        score = self.score_of(step)
        return score is not None and score.is_better_than(self.score)

    def saved(self, score: Score | None) -> None:
        """A snapshot of ``score`` is on disk."""
        if score is not None and score.is_better_than(self.score):
            self.score = score
