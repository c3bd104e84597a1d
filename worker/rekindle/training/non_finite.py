"""What a training does when its loss or its weights become infinite or no number."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from rekindle.contract.run_dir.rank_records import MetricPoint

OnNan = Literal["stop", "rollback", "ignore"]

_ROLLBACKS = 3  # to the same snapshot


class NonFiniteError(ArithmeticError):
    """The loss or the weights are no longer finite; nothing of it was saved. Another attempt would end the same."""


def first_non_finite_loss(points: list[MetricPoint]) -> str | None:
    """Which loss among the logged values went wrong first; a metric is a loss where its name says so."""
    for point in points:
        for name, value in point.values.items():
            if "loss" in name.lower() and value is not None and not math.isfinite(value):
                return f"{name} is {value} at step {point.step}"
    return None


@dataclass(slots=True)
class NonFinitePolicy:
    """``stop`` raises, ``rollback`` goes back to the newest snapshot and on with other data, ``ignore`` goes on."""

    wish: OnNan
    _target: int | None = None  # the step gone back to
    _times: int = 0  # in a row

    def __post_init__(self) -> None:
        if self.wish not in get_args(OnNan):
            raise ValueError(f"on_nan must be one of {', '.join(get_args(OnNan))}, not {self.wish!r}")

    def calls_for_rollback(self, finding: str) -> bool:
        """Raises NonFiniteError where the training is to stop."""
        if self.wish == "stop":
            raise NonFiniteError(f"{finding}; on_nan='rollback' or 'ignore' would go on")
        return self.wish == "rollback"

    def may_go_back_to(self, step: int | None, finding: str) -> None:
        """Raises NonFiniteError where ``step``, the newest snapshot's, has been tried too often or does not exist."""
        if step is None:
            raise NonFiniteError(f"{finding}, and there is no snapshot to go back to")
        self._times = self._times + 1 if step == self._target else 1
        self._target = step
        if self._times > _ROLLBACKS:
            raise NonFiniteError(f"{finding}, again after going back to the snapshot of step {step} {_ROLLBACKS} times")
