"""When the next snapshot is due.

The interval of ``SnapshotPolicy(auto=True)`` follows the rule of Young and Daly. A snapshot every T seconds costs the
share C/T of the training, and a failure costs T/2 seconds of it on average, once every M seconds. The sum is least at
T = sqrt(2·C·M): Young's rule, good as long as C is far below M. C is measured (``SnapshotOverhead``); M, the mean time
between failures, comes from the job's own. Two bounds take precedence, see ``SnapshotOverhead.interval``.
"""

import json
import math
import statistics
from collections import deque
from dataclasses import dataclass, field, replace

from rekindle.contract.environment import FailureStats
from rekindle.contract.job_options import SnapshotPolicy

MAX_SHARE = 0.01  # of the training time that snapshots may cost
MAX_INTERVAL = 300.0  # seconds between two snapshots, where MAX_SHARE allows it
FIRST = 5.0  # seconds to the first snapshot of an attempt: nothing is measured before it
_MAX_WRITING_SHARE = 0.5  # of any time: on a CPU, writing takes processor time from the ranks
_PRIOR = 4 * 3600.0  # seconds: the assumed time between failures of a job that nothing is known of
_STEPS = 50  # whose median is the time of a step
_SNAPSHOTS = 5  # whose median is the cost: the first one is expensive, since it fills fresh memory
_SHM_RATIO = 20  # at least, of training time to the time that snapshots in shared memory take
_SHM_INTERVAL = 0.5  # seconds between two of them, at least


def effective_policy(own: SnapshotPolicy, from_job: str | None, monitor: str | None = None) -> SnapshotPolicy:
    """Choose the policy in force: ``auto`` where neither sets any rule.

    ``own`` and ``monitor`` are the script's; ``from_job``, the JSON of the job's submitter, takes precedence.
    """
    job = None if from_job is None else SnapshotPolicy.from_json(json.loads(from_job))
    monitor = (None if job is None else job.monitor) or monitor or own.monitor
    for policy in (job, own):
        if policy and any((policy.auto, policy.every_steps, policy.every_seconds, policy.every_epochs)):
            return replace(policy, monitor=monitor)
    return replace(job or own, auto=True, monitor=monitor)


@dataclass(slots=True)
class SnapshotOverhead:
    """Measures what snapshots cost, in seconds.

    Every snapshot is ``started`` and then ``finished``; steps may be added at any time.
    """

    writing: float = 0.0  # during training, of the latest
    _idle_steps: deque[float] = field(default_factory=lambda: deque(maxlen=_STEPS))
    _blocked: float | None = None  # None while no snapshot is pending
    _busy_steps: list[float] = field(default_factory=list)  # while the pending snapshot is written
    _costs: deque[float] = field(default_factory=lambda: deque(maxlen=_SNAPSHOTS))

    @property
    def step(self) -> float | None:
        """The time of a step while nothing is written; None before the first."""
        return statistics.median(self._idle_steps) if self._idle_steps else None

    @property
    def cost(self) -> float | None:
        """Training time that a snapshot takes: the time that training waits, and by how much its steps are slower.

        None before the first.
        """
        return statistics.median(self._costs) if self._costs else None

    @property
    def min_interval(self) -> float:
        """Seconds between two snapshots below which they would cost too much."""
        return max((self.cost or 0.0) / MAX_SHARE, self.writing / _MAX_WRITING_SHARE)

    def interval(self, mtbf: float) -> float:
        """Seconds from one snapshot to the next: Young's, at most MAX_INTERVAL, and never below ``min_interval``."""
        if self.cost is None:
            return FIRST
        return max(min(math.sqrt(2 * self.cost * mtbf), MAX_INTERVAL), self.min_interval)

    def describe(self, mtbf: float) -> str:
        """Word the interval: ``every 42 steps or at the end of an epoch (auto: 21 ms each, one failure in 4.0 h)``."""
        if self.cost is None:
            return f"after {FIRST:.0f} s (auto: to measure the cost of one)"
        seconds = self.interval(mtbf)
        steps = seconds / self.step if self.step else 0.0
        often = f"every {steps:.0f} steps" if steps >= 1.5 else f"every {seconds:.1f} s"
        expected = f"{mtbf / 3600:.1f} h" if mtbf >= 3600 else f"{mtbf / 60:.0f} min"
        return f"{often} or at the end of an epoch (auto: {self.cost * 1e3:.0f} ms each, one failure in {expected})"

    def add_step(self, seconds: float, *, writing: bool) -> None:
        """Count a step of the training; ``writing`` while anything was written, also to shared memory."""
        if not writing:
            self._idle_steps.append(seconds)
        elif self._blocked is not None:
            self._busy_steps.append(seconds)

    def started(self, blocked: float) -> None:
        """Note that the training has waited ``blocked`` seconds for a snapshot to start."""
        self._blocked, self._busy_steps = blocked, []

    def finished(self, writing: float) -> None:
        """Note that it was written, or failed, in ``writing`` seconds.

        Steps that were slower by more than that were slow for another reason.
        """
        usual = self.step or 0.0
        slower = sum(seconds - usual for seconds in self._busy_steps) if self._idle_steps else 0.0
        self.writing = writing
        self._costs.append((self._blocked or 0.0) + min(max(slower, 0.0), writing))
        self._blocked, self._busy_steps = None, []


@dataclass(slots=True)
class SnapshotSchedule:
    """Rank 0's clock for snapshots. Times are seconds of CLOCK_MONOTONIC."""

    policy: SnapshotPolicy
    started_at: float
    failures: FailureStats = field(default_factory=FailureStats)
    overhead: SnapshotOverhead = field(default_factory=SnapshotOverhead)
    last_at: float = field(init=False)  # when the latest was started or skipped: the next is due an interval from then
    pending: bool = False  # one was due and follows at the next step that can take it
    shm_at: float = 0.0
    shm_cost: float = 0.0  # waiting and writing

    def __post_init__(self) -> None:
        self.last_at = self.started_at

    def due_after_step(self, step: int, now: float) -> bool:
        """True where a snapshot is to follow ``step``, counted from 1."""
        steps = self.policy.every_steps
        due_by_count = steps is not None and step % steps == 0
        return self.pending or due_by_count or self._due_by_time(now) or self._due_by_interval(now)

    def due_after_epoch(self, epoch: int, now: float) -> bool:
        """True where a snapshot is to follow ``epoch``, counted from 0.

        ``auto`` prefers the end of an epoch: it takes one there as soon as the bound on its cost allows.
        """
        cheap_enough = now - self.last_at >= self.overhead.min_interval
        return self._due_by_epoch(epoch) or self._due_by_time(now) or (self.policy.auto and cheap_enough)

    def insists_after_epoch(self, epoch: int) -> bool:
        """True where a snapshot was requested for the end of ``epoch``: it is not skipped for a pending one."""
        return self._due_by_epoch(epoch) or not self.policy.auto

    def on_started(self, now: float, blocked: float) -> None:
        """Note that a snapshot was started at ``now``, and that training waited ``blocked`` seconds for it."""
        self.last_at, self.pending = now, False
        self.overhead.started(blocked)

    def shm_due(self, now: float) -> bool:
        """True when it is time for a snapshot in shared memory; they cost at most 1/``_SHM_RATIO`` of the time."""
        return now - max(self.last_at, self.shm_at) >= max(_SHM_INTERVAL, self.shm_cost * _SHM_RATIO)

    def on_copied(self, now: float, cost: float) -> None:
        """Note that one in shared memory was started or written; either adds to its ``cost``, in seconds."""
        self.shm_at, self.shm_cost = now, cost

    def mean_time_between_failures(self, now: float) -> float:
        """Seconds of the job and the prior together, divided by their failures: soon the job's own count most."""
        return (self.failures.seconds + now - self.started_at + _PRIOR) / (self.failures.count + 1)

    def describe(self, now: float) -> str:
        """Word the rules for people: ``every 20 steps``, ``every 42 steps (auto: …)``."""
        counts = {"steps": self.policy.every_steps, "s": self.policy.every_seconds, "epochs": self.policy.every_epochs}
        rules = [f"every {count:g} {unit}" for unit, count in counts.items() if count is not None]
        if self.policy.auto:
            rules.append(self.overhead.describe(self.mean_time_between_failures(now)))
        return " or ".join(rules)

    def _due_by_time(self, now: float) -> bool:
        seconds = self.policy.every_seconds
        return seconds is not None and now - self.last_at >= seconds

    def _due_by_interval(self, now: float) -> bool:
        return self.policy.auto and now - self.last_at >= self.overhead.interval(self.mean_time_between_failures(now))

    def _due_by_epoch(self, epoch: int) -> bool:
        epochs = self.policy.every_epochs
        return epochs is not None and (epoch + 1) % epochs == 0
