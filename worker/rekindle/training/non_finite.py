"""What a training does when its loss or its weights become infinite or NaN."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from rekindle.contract.run_dir.rank_records import MetricPoint

OnNan = Literal["stop", "rollback", "ignore"]

_MAX_ROLLBACKS = 3  # to the same snapshot


class NonFiniteError(ArithmeticError):
    """The loss or the weights are no longer finite; nothing of it was saved. Another attempt would end the same."""


def first_non_finite_loss(points: list[MetricPoint]) -> str | None:
    """Which logged loss was the first that is not finite; a metric is a loss if its name contains ``loss``."""
    for point in points:
        for name, value in point.values.items():
            if "loss" in name.lower() and value is not None and not math.isfinite(value):
                return f"{name} is {value} at step {point.step}"
    return None


@dataclass(slots=True)
class NonFinitePolicy:
    """What follows: ``stop`` raises, ``rollback`` restores the latest snapshot, ``ignore`` continues."""

    on_nan: OnNan
    _target: int | None = None  # the step of the last rollback
    _times: int = 0  # in a row

    def __post_init__(self) -> None:
        if self.on_nan not in get_args(OnNan):
            raise ValueError(f"on_nan must be one of {', '.join(get_args(OnNan))}, not {self.on_nan!r}")

    def needs_rollback(self, finding: str) -> bool:
        """Raises NonFiniteError where the training is to stop."""
        if self.on_nan == "stop":
            raise NonFiniteError(f"{finding}; on_nan='rollback' or 'ignore' would continue")
        return self.on_nan == "rollback"

    def check_rollback(self, step: int | None, finding: str) -> None:
        """Raises NonFiniteError where ``step``, the latest snapshot's, has been tried too often or does not exist."""
        if step is None:
            raise NonFiniteError(f"{finding}, and there is no snapshot to roll back to")
        self._times = self._times + 1 if step == self._target else 1
        self._target = step
        if self._times > _MAX_ROLLBACKS:
            raise NonFiniteError(f"{finding}, again after {_MAX_ROLLBACKS} rollbacks to the snapshot of step {step}")
