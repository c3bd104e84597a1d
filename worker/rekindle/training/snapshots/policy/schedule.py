"""When the next snapshot is due."""

import json
from dataclasses import dataclass, field, replace

from rekindle.contract.environment import FailureStats
from rekindle.contract.job import SnapshotPolicy
from rekindle.training.snapshots.policy import snapshot_interval
from rekindle.training.snapshots.policy.snapshot_interval import SnapshotOverhead

_SHM_RATIO = 20  # at least, of training time to the time that snapshots in shared memory take
_SHM_INTERVAL = 0.5  # seconds between two of them, at least


def effective_policy(own: SnapshotPolicy, from_job: str | None, monitor: str | None = None) -> SnapshotPolicy:
    """The policy in force: ``auto`` where neither sets any rule.

    ``own`` and ``monitor`` are the script's; ``from_job``, the JSON of the job's submitter, takes precedence.
    """
    job = None if from_job is None else SnapshotPolicy.from_json(json.loads(from_job))
    monitor = (None if job is None else job.monitor) or monitor or own.monitor
    for policy in (job, own):
        if policy and any((policy.auto, policy.every_steps, policy.every_seconds, policy.every_epochs)):
            return replace(policy, monitor=monitor)
    return replace(job or own, auto=True, monitor=monitor)


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
        """Whether a snapshot is to follow ``step``, counted from 1."""
        steps = self.policy.every_steps
        due_by_count = steps is not None and step % steps == 0
        return self.pending or due_by_count or self._due_by_time(now) or self._due_by_interval(now)

    def due_after_epoch(self, epoch: int, now: float) -> bool:
        """Whether a snapshot is to follow ``epoch``, counted from 0.

        ``auto`` prefers the end of an epoch: it takes one there as soon as the bound on its cost allows.
        """
        cheap_enough = now - self.last_at >= snapshot_interval.min_interval(self.overhead.cost, self.overhead.writing)
        return self._due_by_epoch(epoch) or self._due_by_time(now) or (self.policy.auto and cheap_enough)

    def insists_after_epoch(self, epoch: int) -> bool:
        """A snapshot due there was requested for the end of an epoch: it is not skipped for a pending one."""
        return self._due_by_epoch(epoch) or not self.policy.auto

    def on_started(self, now: float, blocked: float) -> None:
        """A snapshot was started at ``now``, and training waited ``blocked`` seconds for it."""
        self.last_at, self.pending = now, False
        self.overhead.started(blocked)

    def shm_due(self, now: float) -> bool:
        """Whether to take a snapshot in shared memory; it costs at most 1/``_SHM_RATIO`` of the time."""
        return now - max(self.last_at, self.shm_at) >= max(_SHM_INTERVAL, self.shm_cost * _SHM_RATIO)

    def on_copied(self, now: float, cost: float) -> None:
        """One in shared memory was started or, before ``now``, written; either adds to its ``cost``, in seconds."""
        self.shm_at, self.shm_cost = now, cost

    def describe(self, now: float) -> str:
        """For people: ``every 20 steps``, ``every 42 steps (auto: …)``."""
        counts = {"steps": self.policy.every_steps, "s": self.policy.every_seconds, "epochs": self.policy.every_epochs}
        rules = [f"every {count:g} {unit}" for unit, count in counts.items() if count is not None]
        if self.policy.auto:
            rules.append(snapshot_interval.describe(self.overhead, self._mtbf(now)))
        return " or ".join(rules)

    def _due_by_time(self, now: float) -> bool:
        seconds = self.policy.every_seconds
        return seconds is not None and now - self.last_at >= seconds

    def _due_by_interval(self, now: float) -> bool:
        cost, writing = self.overhead.cost, self.overhead.writing
        return self.policy.auto and now - self.last_at >= snapshot_interval.interval(cost, writing, self._mtbf(now))

    def _due_by_epoch(self, epoch: int) -> bool:
        epochs = self.policy.every_epochs
        return epochs is not None and (epoch + 1) % epochs == 0

    def _mtbf(self, now: float) -> float:
        return snapshot_interval.mean_time_between_failures(self.failures, now - self.started_at)
