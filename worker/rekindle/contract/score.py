"""How good a snapshot is, by the one metric that the user has named, and which is the best."""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Score:
    """``by`` is as in ``SnapshotPolicy.best``: a metric's name, with ``-`` before it where less is better."""

    by: str
    value: float

    @property
    def sort_key(self) -> float:
        return -self.value if self.by.startswith("-") else self.value

    def is_better_than(self, other: "Score | None") -> bool:
        """Whether a snapshot of this score is to be the best instead of one of ``other``, taken by the same metric.

        Scores by another metric cannot be compared: the new one goes before them. An equal one changes nothing.
        """
        if not math.isfinite(self.value):
            return False
        return other is None or other.by != self.by or self.sort_key > other.sort_key


def metric_of(by: str) -> str:
    """The name of the metric. Raises ValueError where ``by`` has none."""
    name = by.removeprefix("-")
    if not name.strip() or name != name.strip():
        raise ValueError(f"best must be the name of a logged metric, 'accuracy' or '-loss', not {by!r}")
    return name


def best_step(scores: Mapping[int, Score]) -> int | None:
    """The step of the best snapshot by the metric of the latest one that has a score; of equal ones the oldest."""
    best: int | None = None
    for step in sorted(scores):
        if scores[step].is_better_than(None if best is None else scores[best]):
            best = step
    return best
