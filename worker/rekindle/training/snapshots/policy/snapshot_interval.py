"""The interval of ``SnapshotPolicy(auto=True)``, and its only numbers: the rule of Young and Daly.

A snapshot every T seconds costs the share C/T of the training, and a failure costs T/2 seconds of it on average, once
every M seconds. The sum is least at T = sqrt(2·C·M): Young's rule, good as long as C is far below M. C is measured
(``SnapshotOverhead``); M, the mean time between failures, comes from the job's own. Two bounds take precedence, see
``interval``.
"""

import math
import statistics
from collections import deque
from dataclasses import dataclass, field

from rekindle.contract.environment import FailureStats

MAX_SHARE = 0.01  # of the training time that snapshots may cost
MAX_INTERVAL = 300.0  # seconds between two snapshots, where MAX_SHARE allows it
FIRST = 5.0  # seconds to the first snapshot of an attempt: nothing is measured before it
_MAX_WRITING_SHARE = 0.5  # of any time: on a CPU, writing takes processor time from the ranks
_PRIOR = 4 * 3600.0  # seconds: the assumed time between failures of a job that nothing is known of
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


def mean_time_between_failures(past: FailureStats, running: float) -> float:
    """M in seconds; ``running`` is how long this attempt has run without a failure.

    The job's own time and failures, and those of the prior: so it begins with the prior, and soon forgets it.
    """
    return (past.seconds + running + _PRIOR) / (past.count + 1)


def min_interval(cost: float | None, writing: float) -> float:
    """Seconds between two snapshots below which they would cost too much; ``cost`` None is not known yet."""
    return max((cost or 0.0) / MAX_SHARE, writing / _MAX_WRITING_SHARE)


def interval(cost: float | None, writing: float, mtbf: float) -> float:
    """Seconds from one snapshot to the next: Young's, at most ``MAX_INTERVAL``, and never below ``min_interval``."""
    if cost is None:
        return FIRST
    return max(min(math.sqrt(2 * cost * mtbf), MAX_INTERVAL), min_interval(cost, writing))


def describe(overhead: SnapshotOverhead, mtbf: float) -> str:
    """For people: ``every 42 steps or at the end of an epoch (auto: 21 ms each, one failure in 4.0 h)``."""
    if overhead.cost is None:
        return f"after {FIRST:.0f} s (auto: to measure the cost of one)"
    seconds = interval(overhead.cost, overhead.writing, mtbf)
    steps = seconds / overhead.step if overhead.step else 0.0
    often = f"every {steps:.0f} steps" if steps >= 1.5 else f"every {seconds:.1f} s"
    expected = f"{mtbf / 3600:.1f} h" if mtbf >= 3600 else f"{mtbf / 60:.0f} min"
    return f"{often} or at the end of an epoch (auto: {overhead.cost * 1e3:.0f} ms each, one failure in {expected})"
