"""When does a lack of progress mean a hang? Pure: samples in, seconds out; the timeout is learned from the job's steps.

A job is as fast as its slowest rank, so progress is the world's: a step counts when any rank has finished one that
none had finished before, or when all went back to an earlier one. A script that reports no steps is judged by its
collectives, its output and its processor time: all three must stall. Processor time spent waiting in a collective is
no progress, and one of NCCL waits at full speed; what is spent outside of one (an evaluation, a compilation) is.

An endless loop computes as well, without a finished step: it stays in one function of the user's own code, and its
thread neither allocates memory, nor reads or writes, nor waits for another thread. A thread that waits for its GPU does
just that, and stays at the line that waits: in a job of several ranks it counts as such a loop.
"""

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rekindle.contract.rank_traces import Frame
from rekindle.contract.run_dir.json_records import JsonRecord
from rekindle.contract.run_dir.rank_records import DEBUGGER_PHASE
from rekindle.keeper.rank_processes.probe import RankSample

MIN_TIMEOUT = 25.0  # seconds, unless the user sets another
STOPPED_TIMEOUT = 5.0  # seconds for which a rank is stopped by a signal; nothing of it runs meanwhile
NOTICEABLE = 7.0  # seconds without progress that are shown, see ``is_noticeable``
STEP_FACTOR = 20.0  # times the median step
SLOWEST_FACTOR = 3.0  # times the slowest step so far
SLOW_PHASE_FACTOR = 10.0  # restoring, evaluating, saving and the first step take longer, within reason
COMPUTING_FACTOR = 10.0  # a rank that computes may do something long that no phase reports, or be in an endless loop
COMPUTING_SECONDS = 10.0  # for which a rank counts as computing after it was observed to
SILENT_TIMEOUT = 300.0  # seconds for scripts that report nothing
LONG_TIMEOUT = 300.0  # seconds, at least, where what the ranks wait for may end
MIN_STEPS = 5  # before the job's own pace counts
_MAX_STEPS = 1 << 50
IDLE = 0.05  # processor seconds a second below which a rank does nothing
SAMPLES = 8  # in a row, a second apart, that must be alike
_MAX_EVENTS = 2  # page faults and so on between two samples


@dataclass(frozen=True, slots=True)
class Pace(JsonRecord):
    """What an attempt has learned about the job's speed, for the next one, which may hang before it has learned it."""

    steps: int = 0  # observed
    median: float = 0.0  # seconds of a step
    slowest: float = 0.0  # seconds between two steps, and until the first one


@dataclass(slots=True)
class StallDetector:
    """Add every sample of the world; ``stalled`` returns how long there was no progress once that is too long."""

    limit: float | None = None  # set by the user, in seconds
    before: Pace = field(default_factory=Pace)  # of earlier attempts
    min_timeout: float = 0.0  # the timeout is no shorter, in seconds, until there is progress; a user's limit is
    _step: int | None = None
    _stepped_at: float = 0.0
    _progressed_at: float | None = None
    _steps_observed: int = 0
    _intervals: deque[float] = field(default_factory=lambda: deque(maxlen=50))
    _slowest: float = 0.0
    _first_step: float = 0.0  # seconds until it was finished
    _world: Sequence[RankSample] = ()  # as it was sampled last
    _started: bool = False  # a script that reports nothing has enqueued a collective, or written something
    _active_at: float = 0.0  # when a collective or output was observed last
    _computed_at: float | None = None
    _sampled_at: float | None = None
    _began_at: float | None = None
    _stopped_at: float | None = None  # since when a rank is stopped by a signal

    def stalled(self, now: float, world: Sequence[RankSample]) -> float | None:
        """Seconds without progress when they exceed the timeout, else None. ``now``: seconds of CLOCK_MONOTONIC."""
        computing = self._is_computing(now, world)
        if self._progressed_at is None or self._has_progressed(world, computing):
            self._progressed_at, self.min_timeout = now, 0.0
        if computing:
            self._computed_at = now
        self._remember(now, world)
        if self._stopped_for(now) >= STOPPED_TIMEOUT:
            return self._stopped_for(now)
        seconds = now - self._progressed_at
        return seconds if seconds > self.timeout(now) else None

    @property
    def pace(self) -> Pace:
        """What this attempt and those before it have learned."""
        if self._steps_observed < MIN_STEPS:
            return self.before
        steps = self._steps_observed + self.before.steps
        return Pace(min(steps, _MAX_STEPS), statistics.median(self._intervals), max(self._slowest, self._first_step))

    def moves(self, sample: RankSample) -> bool:
        """Whether ``sample`` shows that its rank has done something since it was sampled last."""
        before = next((each for each in self._world if each.rank == sample.rank), None)
        return before is None or _activity_of([before]) != _activity_of([sample]) or before.step != sample.step

    def discount(self, seconds: float) -> None:
        """Do not count ``seconds`` in which nothing could be observed, as in a frozen container."""
        self._progressed_at = None if self._progressed_at is None else self._progressed_at + seconds
        self._sampled_at = None if self._sampled_at is None else self._sampled_at + seconds
        self._stepped_at += seconds
        self._active_at += seconds
        self._began_at = None if self._began_at is None else self._began_at + seconds
        self._stopped_at = None if self._stopped_at is None else self._stopped_at + seconds

    def without_progress(self, now: float) -> float | None:
        """Seconds since progress was observed, 0 where more than these were discounted; None before any sample."""
        return None if self._progressed_at is None else max(round(now - self._progressed_at, 1), 0.0)

    def is_noticeable(self, now: float) -> bool:
        """Whether a person should be shown that there is no progress, long before it counts as a hang.

        That is a third of the timeout, or seven seconds and twice the slowest step where ranks wait for another that
        neither computes nor is in a slow phase, or all wait in collectives.
        """
        if self._progressed_at is None:
            return False
        seconds, least = now - self._progressed_at, self._usual_timeout(now) / 3
        learned = self._step is None or max(self._steps_observed, self.before.steps) >= MIN_STEPS
        waits, all_wait = (each(sample.in_collective for sample in self._world) for each in (any, all))
        if waits and (all_wait or (learned and not self._computed_within(NOTICEABLE - 1, now) and not self._is_slow())):
            known = NOTICEABLE if learned else 3 * NOTICEABLE
            least = min(least, max(known, 2 * max(self.before.slowest, self._slowest)))
        return seconds >= least or self._stopped_at is not None

    def times(self, now: float) -> tuple[float, float]:
        """Seconds without progress, and seconds until it counts as a hang."""
        if self._stopped_at is not None:
            return self._stopped_for(now), STOPPED_TIMEOUT - self._stopped_for(now)
        seconds = self.without_progress(now) or 0.0
        return seconds, self.timeout(now) - seconds

    def timeout(self, now: float) -> float:
        """Seconds without progress that are no hang yet."""
        usual = self._usual_timeout(now)
        return max(usual, self.min_timeout) if self.limit is None else usual

    def _usual_timeout(self, now: float) -> float:
        slow = SLOW_PHASE_FACTOR if self._is_slow() else 1.0
        return (
            self._step_timeout() * slow * (COMPUTING_FACTOR if self._computed_within(COMPUTING_SECONDS, now) else 1.0)
        )

    def _computed_within(self, seconds: float, now: float) -> bool:
        return self._computed_at is not None and now - self._computed_at <= seconds

    def _step_timeout(self) -> float:
        if self.limit is not None:
            return self.limit
        if self._step is None:
            return SILENT_TIMEOUT
        median, slowest = self.before.median, max(self.before.slowest, self._slowest)
        if self._steps_observed >= MIN_STEPS:
            median, slowest = statistics.median(self._intervals), self._slowest
        elif self.before.steps < MIN_STEPS:
            return SILENT_TIMEOUT * 2
        return max(MIN_TIMEOUT, STEP_FACTOR * median, SLOWEST_FACTOR * slowest)

    def _stopped_for(self, now: float) -> float:
        return 0.0 if self._stopped_at is None else now - self._stopped_at

    def _is_slow(self) -> bool:
        """True in a phase that takes long, or where nothing has been learned and nothing bounds the first step."""
        if any(sample.phase not in (None, "train") for sample in self._world):
            return True
        if self._step is None:
            return not self._started
        return self._steps_observed == 0 and self.limit is not None

    def _has_progressed(self, world: Sequence[RankSample], computing: bool) -> bool:
        phases = [sample.phase for sample in world]
        if DEBUGGER_PHASE in phases or phases != [sample.phase for sample in self._world]:
            return True
        steps = [sample.step for sample in world if sample.step is not None]
        return max(steps) != self._step if steps else computing or _activity_of(world) != _activity_of(self._world)

    def _is_computing(self, now: float, world: Sequence[RankSample]) -> bool:
        """True while a rank computes outside of a collective: it is alive, for as long as a slow phase may take.

        Where no collective can be observed, as in a job of one rank, it may compute for ever.
        """
        if self.limit is not None:
            return False
        observable = any(sample.collectives is not None for sample in world)
        if observable and now - self._active_at > SILENT_TIMEOUT * (SLOW_PHASE_FACTOR - 1):
            return False
        least = IDLE * (now - (self._sampled_at or now))
        before = {sample.rank: sample.cpu for sample in self._world}
        known = any(sample.in_collective for sample in world)  # then those outside do something else
        outside = [
            sample
            for sample in world
            if not sample.in_collective and not sample.in_dead_loop and (known or not sample.is_blind)
        ]
        return any(sample.cpu - before.get(sample.rank, sample.cpu) > least for sample in outside)

    def _remember(self, now: float, world: Sequence[RankSample]) -> None:
        steps = [sample.step for sample in world if sample.step is not None]
        if steps and max(steps) != self._step:
            self._learn(now, max(steps))
        if self._steps_observed < MIN_STEPS:
            self._learn_from_reports(world)
        active = _activity_of(world) != _activity_of(self._world)
        communicates = any((sample.collectives or 0) > 0 for sample in world)
        # A limit may be shorter than the start of a script, which often begins with a line: only later ones count then.
        since_start = self.limit is None and any(sample.output > 0 for sample in world)
        self._started |= communicates or since_start or (self._sampled_at is not None and active)
        self._active_at = now if active else self._active_at
        stopped = any(sample.state == "T" for sample in world)
        self._stopped_at = (now if self._stopped_at is None else self._stopped_at) if stopped else None
        self._began_at = now if self._began_at is None else self._began_at
        self._world, self._sampled_at = world, now

    def _learn(self, now: float, step: int) -> None:
        """Learn from a new step, which may have taken all the time since the last change, however many were done."""
        if self._step is not None and step > self._step:
            gap = now - self._stepped_at
            if self._steps_observed == 0 and self._began_at is not None:
                self._first_step = now - self._began_at
            self._intervals.append(gap / (step - self._step))
            self._slowest = max(self._slowest, gap)
            self._steps_observed += step - self._step
        self._step, self._stepped_at = step, now

    def _learn_from_reports(self, world: Sequence[RankSample]) -> None:
        """Learn from the ranks' own counts: many steps may be over before the first sample, and none follow."""
        known = [sample for sample in world if sample.reported_steps > MIN_STEPS and sample.steps_per_second]
        rates = [sample.steps_per_second for sample in known if sample.steps_per_second is not None]
        if rates:
            self._intervals.append(1 / min(rates))
            self._slowest = max(self._slowest, 1 / min(rates))
            self._steps_observed = MIN_STEPS


def _activity_of(world: Sequence[RankSample]) -> tuple[object, ...]:
    return tuple((sample.output, sample.collectives, sample.total_collectives) for sample in world)


@dataclass(frozen=True, slots=True)
class BusySample:
    """What one rank that computes outside of a collective does.

    The rank answers a request for its frames, for which its main thread waits, often on a busy machine: that is why its
    events are counted before and after.
    """

    step: int | None
    frames: Sequence[Frame]  # main thread, innermost first; none where the rank did not answer in time
    events_before: tuple[int, ...] | None  # of the main thread so far
    events_after: tuple[int, ...] | None
    waits_for_gpu: bool = False


@dataclass(slots=True)
class DeadLoopDetector:
    """Add a sample a second of every rank that computes; ``forget`` those that do something else."""

    code: Path
    _last: dict[int, BusySample] = field(default_factory=dict)
    _alike: dict[int, int] = field(default_factory=dict)

    def add(self, rank: int, sample: BusySample) -> bool:
        """Add a sample; true once the latest of ``rank`` show an endless loop. One without frames shows nothing."""
        if not sample.frames:
            return False
        before = self._last.get(rank)
        alike = before is not None and self._is_alike(before, sample)
        self._last[rank] = sample
        self._alike[rank] = self._alike.get(rank, 0) + 1 if alike else 0
        return self._alike[rank] >= SAMPLES

    def forget(self, rank: int) -> None:
        self._last.pop(rank, None)
        self._alike.pop(rank, None)

    def _is_alike(self, one: BusySample, other: BusySample) -> bool:
        if one.step != other.step or one.events_after is None or other.events_before is None:
            return False
        counted = zip(one.events_after, other.events_before, strict=True)
        few = all(0 <= after - before <= _MAX_EVENTS for before, after in counted)
        if one.waits_for_gpu or other.waits_for_gpu:
            return few and one.waits_for_gpu == other.waits_for_gpu and list(one.frames) == list(other.frames)
        own_code = Path(other.frames[0].file).is_relative_to(self.code)
        return few and own_code and _functions(one.frames) == _functions(other.frames)


def _functions(frames: Sequence[Frame]) -> list[tuple[str, str, int | None]]:
    """List all functions with the line of the call in each; the line of the innermost may change."""
    return [(frame.file, frame.function, frame.line if depth else None) for depth, frame in enumerate(frames)]
