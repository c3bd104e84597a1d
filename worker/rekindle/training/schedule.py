"""When the next snapshot is due."""

import json
from dataclasses import dataclass, field, replace

from rekindle.contract.failure_stats import FailureStats
from rekindle.contract.job import SnapshotPolicy
from rekindle.training import snapshot_interval
from rekindle.training.save_costs import SaveCosts

_LEAST_RATIO = 20  # of training time to the time that copies in memory take
_COPY_INTERVAL = 0.5  # seconds between two of them


def effective_policy(own: SnapshotPolicy, from_job: str | None) -> SnapshotPolicy:
    """The policy in force: ``auto`` where neither sets any rule.

    ``own`` is what the script says; ``from_job``, the JSON that the job's submitter gave, goes before it.
    """
    job = None if from_job is None else SnapshotPolicy.from_json(json.loads(from_job))
    monitor = own.monitor if job is None else job.monitor or own.monitor
    for policy in (job, own):
        if policy is not None and _is_set(policy):
            return replace(policy, monitor=monitor)
    return replace(job or own, auto=True, monitor=monitor)


def _is_set(policy: SnapshotPolicy) -> bool:
    return policy.auto or any((policy.every_steps, policy.every_seconds, policy.every_epochs))


@dataclass(slots=True)
class SnapshotSchedule:
    """Rank 0's clock for snapshots. Times are seconds of CLOCK_MONOTONIC."""

    policy: SnapshotPolicy
    started_at: float
    failures: FailureStats = field(default_factory=FailureStats)
    costs: SaveCosts = field(default_factory=SaveCosts)
    last_at: float = field(init=False)  # when the newest was begun or left out
    owed: bool = False  # one was due and is to follow at the next step that can take it
    copied_at: float = 0.0
    copy_cost: float = 0.0  # waiting and writing

    def __post_init__(self) -> None:
        self.last_at = self.started_at

    def due_after_step(self, step: int, now: float) -> bool:
        """Whether a snapshot is to follow ``step``, counted from 1."""
        steps = self.policy.every_steps
        due_by_count = steps is not None and step % steps == 0
        return self.owed or due_by_count or self._due_by_time(now) or self._due_by_rule(now)

    def due_after_epoch(self, epoch: int, now: float) -> bool:
        """Whether a snapshot is to follow ``epoch``, counted from 0.

        ``auto`` likes the end of an epoch: it takes one there as soon as the bound on its cost allows.
        """
        least = snapshot_interval.least_interval(self.costs.cost, self.costs.writing)
        at_rest = self.policy.auto and now - self.last_at >= least
        return self._falls_on(epoch) or self._due_by_time(now) or at_rest

    def insists_after_epoch(self, epoch: int) -> bool:
        """A snapshot due there was asked for at this very place: it is not left out for one under way."""
        return self._falls_on(epoch) or not self.policy.auto

    def tried(self, now: float, blocked: float) -> None:
        """A snapshot was begun: the next one is due an interval from ``now``. Training waited ``blocked`` seconds."""
        self.last_at, self.owed = now, False
        self.costs.began(blocked)

    def put_off(self, now: float) -> None:
        """A snapshot was left out: the next one is due an interval from ``now``."""
        self.last_at = now

    def written(self, seconds: float) -> None:
        """A snapshot was written beside the training, or failed, in so many seconds."""
        self.costs.ended(seconds)

    def copy_due(self, now: float) -> bool:
        """Whether a copy in shared memory is to be taken; it costs one part in ``_LEAST_RATIO`` of the time at most."""
        return now - max(self.last_at, self.copied_at) >= max(_COPY_INTERVAL, self.copy_cost * _LEAST_RATIO)

    def copied(self, now: float, cost: float) -> None:
        """A copy was begun or, a moment before ``now``, written; either part adds to its ``cost``, in seconds."""
        self.copied_at, self.copy_cost = now, cost

    def _due_by_time(self, now: float) -> bool:
        seconds = self.policy.every_seconds
        return seconds is not None and now - self.last_at >= seconds

    def _due_by_rule(self, now: float) -> bool:
        if not self.policy.auto:
            return False
        return now - self.last_at >= snapshot_interval.interval(
            self.costs.cost, self.costs.writing, self._between_failures(now)
        )

    def _falls_on(self, epoch: int) -> bool:
        epochs = self.policy.every_epochs
        return epochs is not None and (epoch + 1) % epochs == 0

    def _between_failures(self, now: float) -> float:
        return snapshot_interval.time_between_failures(self.failures, now - self.started_at)

    def describe(self, now: float) -> str:
        """For people: ``every 20 steps``, ``every 42 steps (auto: …)``."""
        snapshot_policy = self.policy
        said = [
            f"every {count:g} {unit}"
            for count, unit in (
                (snapshot_policy.every_steps, "steps"),
                (snapshot_policy.every_seconds, "s"),
                (snapshot_policy.every_epochs, "epochs"),
            )
            if count is not None
        ]
        if snapshot_policy.auto:
            said.append(snapshot_interval.describe(self.costs, self._between_failures(now)))
        return " or ".join(said)
