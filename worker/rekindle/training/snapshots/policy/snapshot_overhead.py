"""What a snapshot costs the training, measured by its own steps."""

import statistics
from collections import deque
from dataclasses import dataclass, field

_STEPS = 50  # whose median is the time of a step
_SNAPSHOTS = 5  # whose median is the cost: the first one is expensive, since it fills fresh memory


@dataclass(slots=True)
class SnapshotOverhead:
    """All times in seconds. Every snapshot is ``started`` and then ``finished``; steps may be added at any time."""

    writing: float = 0.0  # during training, of the latest
    _idle_steps: deque[float] = field(default_factory=lambda: deque(maxlen=_STEPS))
    _blocked: float | None = None  # None while no snapshot is pending
    _busy_steps: list[float] = field(default_factory=list)  # while the pending snapshot is written
    _costs: deque[float] = field(default_factory=lambda: deque(maxlen=_SNAPSHOTS))

    @property
    def step(self) -> float | None:
        """What a step takes while nothing is written; None before the first."""
        return statistics.median(self._idle_steps) if self._idle_steps else None

    @property
    def cost(self) -> float | None:
        """Training time that a snapshot takes: the time that training waits, and by how much its steps are slower.

        None before the first.
        """
        return statistics.median(self._costs) if self._costs else None

    def add_step(self, seconds: float, *, writing: bool) -> None:
        """A step of the training; ``writing`` while anything was written, also to shared memory."""
        if not writing:
            self._idle_steps.append(seconds)
        elif self._blocked is not None:
            self._busy_steps.append(seconds)

    def started(self, blocked: float) -> None:
        """The training has waited ``blocked`` seconds."""
        self._blocked, self._busy_steps = blocked, []

    def finished(self, writing: float) -> None:
        """It was written, or failed, in ``writing`` seconds; steps slower than that were slow for another reason."""
        usual = self.step or 0.0
        slower = sum(seconds - usual for seconds in self._busy_steps) if self._idle_steps else 0.0
        self.writing = writing
        self._costs.append((self._blocked or 0.0) + min(max(slower, 0.0), writing))
        self._blocked, self._busy_steps = None, []
