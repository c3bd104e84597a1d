"""When does a lack of progress mean a hang? Pure: samples in, seconds out; the timeout is learned from the job's steps.

A job is as fast as its slowest rank, so progress is the world's: a step counts when any rank has finished one that
none had finished before, or when all went back to an earlier one. A script that reports no steps is judged by its
collectives, its output and its processor time: all three must stall. Processor time spent waiting in a collective is
no progress; what is spent outside of one (an evaluation, a compilation) is.
"""

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rekindle.keeper.ranks.probe import RankSample

MIN_TIMEOUT = 30.0  # seconds, unless the user sets another
STEP_FACTOR = 20.0  # times the median step
SLOWEST_FACTOR = 3.0  # times the slowest step so far
SLOW_PHASE_FACTOR = 10.0  # restoring, evaluating, saving and the first step take longer, within reason
COMPUTING_FACTOR = 10.0  # a rank that computes may do something long that no phase reports, or be in an endless loop
COMPUTING_SECONDS = 10.0  # for which a rank counts as computing after it was observed to
SILENT_TIMEOUT = 300.0  # seconds for scripts that report nothing
MIN_STEPS = 5  # before the job's own pace counts
IDLE = 0.05  # processor seconds a second below which a rank does nothing


@dataclass(slots=True)
class StallDetector:
    """Add every sample of the world; ``stalled`` returns how long there was no progress once that is too long."""

    limit: float | None = None  # set by the user, in seconds
    _step: int | None = None
    _stepped_at: float = 0.0
    _progressed_at: float | None = None
    _steps_observed: int = 0
    _intervals: deque[float] = field(default_factory=lambda: deque(maxlen=50))
    _slowest: float = 0.0
    _world: Sequence[RankSample] = ()  # as it was sampled last
    _started: bool = False  # a script that reports nothing has enqueued a collective, or written something
    _active_at: float = 0.0  # when a collective or output was observed last
    _computed_at: float | None = None
    _sampled_at: float | None = None

    def stalled(self, now: float, world: Sequence[RankSample]) -> float | None:
        """Seconds without progress when they exceed the timeout, else None. ``now``: seconds of CLOCK_MONOTONIC."""
        computing = self._is_computing(now, world)
        if self._progressed_at is None or self._has_progressed(world, computing):
            self._progressed_at = now
        if computing:
            self._computed_at = now
        self._remember(now, world)
        seconds = now - self._progressed_at
        return seconds if seconds > self.timeout(now) else None

    def discount(self, seconds: float) -> None:
        """Nothing could be observed for ``seconds``, as in a frozen container: that time counts for nothing."""
        self._progressed_at = None if self._progressed_at is None else self._progressed_at + seconds
        self._sampled_at = None if self._sampled_at is None else self._sampled_at + seconds
        self._stepped_at += seconds
        self._active_at += seconds

    def timeout(self, now: float) -> float:
        """Seconds without progress that are no hang yet."""
        slow = SLOW_PHASE_FACTOR if self._is_slow() else 1.0
        recently = self._computed_at is not None and now - self._computed_at <= COMPUTING_SECONDS
        return self._step_timeout() * slow * (COMPUTING_FACTOR if recently else 1.0)

    def _step_timeout(self) -> float:
        if self.limit is not None:
            return self.limit
        if self._step is None:
            return SILENT_TIMEOUT
        if self._steps_observed < MIN_STEPS:
            return SILENT_TIMEOUT * 2
        return max(MIN_TIMEOUT, STEP_FACTOR * statistics.median(self._intervals), SLOWEST_FACTOR * self._slowest)

    def _is_slow(self) -> bool:
        """In a phase that takes long; or nothing has been learned, and nothing else bounds the first step."""
        if any(sample.phase not in (None, "train") for sample in self._world):
            return True
        if self._step is None:
            return not self._started
        return self._steps_observed == 0 and self.limit is not None

    def _has_progressed(self, world: Sequence[RankSample], computing: bool) -> bool:
        if [sample.phase for sample in world] != [sample.phase for sample in self._world]:
            return True
        steps = [sample.step for sample in world if sample.step is not None]
        return max(steps) != self._step if steps else computing or _activity_of(world) != _activity_of(self._world)

    def _is_computing(self, now: float, world: Sequence[RankSample]) -> bool:
        """A rank that computes outside of a collective is alive, for as long as a slow phase may take.

        Where no collective can be observed, as in a job of one rank, it may compute for ever.
        """
        if self.limit is not None:
            return False
        observable = any(sample.collectives is not None for sample in world)
        if observable and now - self._active_at > SILENT_TIMEOUT * (SLOW_PHASE_FACTOR - 1):
            return False
        least = IDLE * (now - (self._sampled_at or now))
        before = {sample.rank: sample.cpu for sample in self._world}
        outside = [sample for sample in world if not sample.in_collective]
        return any(sample.cpu - before.get(sample.rank, sample.cpu) > least for sample in outside)

    def _remember(self, now: float, world: Sequence[RankSample]) -> None:
        steps = [sample.step for sample in world if sample.step is not None]
        if steps and max(steps) != self._step:
            self._learn(now, max(steps))
        active = _activity_of(world) != _activity_of(self._world)
        communicates = any((sample.collectives or 0) > 0 for sample in world)
        self._started |= communicates or (self._sampled_at is not None and active)
        self._active_at = now if active else self._active_at
        self._world, self._sampled_at = world, now

    def _learn(self, now: float, step: int) -> None:
        """A step may have taken all the time since the last change, however many were done in it."""
        if self._step is not None and step > self._step:
            gap = now - self._stepped_at
            self._intervals.append(gap / (step - self._step))
            self._slowest = max(self._slowest, gap)
            self._steps_observed += step - self._step
        self._step, self._stepped_at = step, now


def _activity_of(world: Sequence[RankSample]) -> tuple[object, ...]:
    return tuple((sample.output, sample.collectives, sample.total_collectives) for sample in world)
