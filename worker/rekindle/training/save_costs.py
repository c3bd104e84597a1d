"""What a snapshot costs the training, as its own steps show it."""

import statistics
from collections import deque
from dataclasses import dataclass, field

_STEPS = 50  # whose median is the time of a step
_SNAPSHOTS = 5  # whose median is the cost: the first one is dear, since it fills fresh memory


def _last(count: int) -> deque[float]:
    return deque(maxlen=count)


@dataclass(slots=True)
class SaveCosts:
    """All times in seconds. Every snapshot is ``began`` and then ``ended``; steps are told in between and outside."""

    writing: float = 0.0  # beside the training, of the newest
    _free: deque[float] = field(default_factory=lambda: _last(_STEPS))
    _blocked: float | None = None  # None while no snapshot is under way
    _meanwhile: list[float] = field(default_factory=list)  # steps while the snapshot under way is written
    _costs: deque[float] = field(default_factory=lambda: _last(_SNAPSHOTS))

    @property
    def step(self) -> float | None:
        """What a step takes while nothing is written; None before the first."""
        return statistics.median(self._free) if self._free else None

    @property
    def cost(self) -> float | None:
        """Training time that a snapshot takes: the time that training waits, and what its steps take longer meanwhile.

        None before the first.
        """
        return statistics.median(self._costs) if self._costs else None

    def add_step(self, seconds: float, *, writing: bool) -> None:
        """A step of the training; ``writing`` while anything was written, be it a copy in memory."""
        if not writing:
            self._free.append(seconds)
        elif self._blocked is not None:
            self._meanwhile.append(seconds)

    def began(self, blocked: float) -> None:
        """The training has waited for so long."""
        self._blocked, self._meanwhile = blocked, []

    def ended(self, writing: float) -> None:
        """It was written, or failed, in so long; what took steps longer than that was something else."""
        usual = self.step or 0.0
        slower = sum(seconds - usual for seconds in self._meanwhile) if self._free else 0.0
        self.writing = writing
        self._costs.append((self._blocked or 0.0) + min(max(slower, 0.0), writing))
        self._blocked, self._meanwhile = None, []
