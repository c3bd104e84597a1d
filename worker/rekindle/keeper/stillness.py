"""When does silence mean a hang? Pure: looks in, verdict out; the bound is learned from the job's own pace.

A job is as fast as its slowest rank, so progress is the world's: a step counts when any rank has finished one that
none had finished before, or when all went back to an earlier one. A script that reports no steps is judged by its
collectives, its output and its processor time: all three must stand still. What a rank spends on waiting in a
collective is no progress; what others spend outside of one (an evaluation, a compilation) is.
"""

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rekindle.keeper.vital_signs import Vitals

FLOOR = 30.0  # seconds: no bound is shorter unless the user says so
FACTOR = 20.0  # times the median step
SLOWEST_FACTOR = 3.0  # times the slowest step seen
SLOW_PHASE_FACTOR = 10.0  # restoring, evaluating, saving and the first step take as long as they like, within reason
BUSY_FACTOR = 10.0  # a rank that computes may do something long that nobody was told of, or be in an endless loop
BUSY = 10.0  # seconds for which a rank counts as computing after it was seen to
SILENT = 300.0  # seconds for scripts that report nothing
LEARNED_FROM = 5  # steps before the job's own pace counts
IDLE = 0.05  # processor seconds a second below which a rank does nothing


@dataclass(slots=True)
class Stillness:
    """Feed it every look at the world; ``hung`` tells how long nothing has happened once that is too long."""

    limit: float | None = None  # the user's hang_timeout in seconds
    _step: int | None = None
    _stepped_at: float = 0.0
    _moved_at: float | None = None
    _steps_seen: int = 0
    _intervals: deque[float] = field(default_factory=lambda: deque(maxlen=50))
    _slowest: float = 0.0
    _phase: tuple[str | None, ...] = ()
    _silent: tuple[object, ...] = ()
    _stirred: bool = False  # a script that reports nothing has begun: a collective, or output since the first look
    _signed_at: float = 0.0  # when a collective or output was seen last
    _busy_at: float | None = None
    _cpu: dict[int, float] = field(default_factory=dict)  # seconds, by rank
    _looked_at: float | None = None

    def hung(self, now: float, world: Sequence[Vitals]) -> float | None:
        """Seconds without progress when they exceed the bound, else None. ``now``: seconds of CLOCK_MONOTONIC."""
        busy = self._is_busy(now, world)
        if self._moved_at is None or self._has_moved(world, busy):
            self._moved_at = now
        if busy:
            self._busy_at = now
        self._remember(now, world)
        still = now - self._moved_at
        return still if still > self.bound(now) else None

    def excuse(self, seconds: float) -> None:
        """For so long nothing could be seen, as in a frozen container: it is no standstill, and teaches nothing."""
        self._moved_at = None if self._moved_at is None else self._moved_at + seconds
        self._looked_at = None if self._looked_at is None else self._looked_at + seconds
        self._stepped_at += seconds
        self._signed_at += seconds

    def bound(self, now: float) -> float:
        """Seconds of standstill that are still believed."""
        slow = SLOW_PHASE_FACTOR if self._is_slow() else 1.0
        busy = BUSY_FACTOR if self._busy_at is not None and now - self._busy_at <= BUSY else 1.0
        return self._step_bound() * slow * busy

    def _step_bound(self) -> float:
        if self.limit is not None:
            return self.limit
        if self._step is None:
            return SILENT
        if self._steps_seen < LEARNED_FROM:
            return SILENT * 2
        return max(FLOOR, FACTOR * statistics.median(self._intervals), SLOWEST_FACTOR * self._slowest)

    def _is_slow(self) -> bool:
        """In a phase that takes long; or nothing has been learned, and nothing else bounds the first step."""
        if any(phase not in (None, "train") for phase in self._phase):
            return True
        if self._step is None:
            return not self._stirred
        return self._steps_seen == 0 and self.limit is not None

    def _has_moved(self, world: Sequence[Vitals], busy: bool) -> bool:
        if tuple(vitals.phase for vitals in world) != self._phase:
            return True
        steps = [vitals.step for vitals in world if vitals.step is not None]
        if steps:
            return max(steps) != self._step
        return self._silent_signs(world) != self._silent or busy

    def _is_busy(self, now: float, world: Sequence[Vitals]) -> bool:
        """A rank that computes outside of a collective is alive, for as long as a slow phase may take.

        Where no collective can be seen, as in a job of one rank, it may compute for ever.
        """
        if self.limit is not None:
            return False
        seen = any(vitals.collectives is not None for vitals in world)
        if seen and now - self._signed_at > SILENT * (SLOW_PHASE_FACTOR - 1):
            return False
        least = IDLE * (now - (self._looked_at or now))
        return any(vitals.cpu - self._cpu.get(vitals.rank, vitals.cpu) > least for vitals in world if not vitals.waits)

    @staticmethod
    def _silent_signs(world: Sequence[Vitals]) -> tuple[object, ...]:
        return tuple((vitals.output, vitals.collectives, vitals.in_all) for vitals in world)

    def _remember(self, now: float, world: Sequence[Vitals]) -> None:
        steps = [vitals.step for vitals in world if vitals.step is not None]
        if steps and max(steps) != self._step:
            self._learn(now, max(steps))
        self._phase = tuple(vitals.phase for vitals in world)
        signs = self._silent_signs(world)
        communicates = any((vitals.collectives or 0) > 0 for vitals in world)
        self._stirred = self._stirred or communicates or (self._looked_at is not None and signs != self._silent)
        self._signed_at = now if signs != self._silent else self._signed_at
        self._silent = signs
        self._cpu = {vitals.rank: vitals.cpu for vitals in world}
        self._looked_at = now

    def _learn(self, now: float, step: int) -> None:
        """A step may have taken all the time since the last change, however many were done in it."""
        if self._step is not None and step > self._step:
            gap = now - self._stepped_at
            self._intervals.append(gap / (step - self._step))
            self._slowest = max(self._slowest, gap)
            self._steps_seen += step - self._step
        self._step, self._stepped_at = step, now
