"""The snapshots of a run: started when due, written during training, waited for before the next."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rekindle.contract.run_dir.rank_records import MetricPoint
from rekindle.contract.run_dir.snapshot_dir import SnapshotScore, metric_of
from rekindle.training.reporter import reporter
from rekindle.training.sampler import Position, TrainingProgress
from rekindle.training.snapshots.replicas import WeightSample
from rekindle.training.snapshots.snapshot_schedule import SnapshotSchedule
from rekindle.training.snapshots.training_snapshots import Snapshots, Validator
from rekindle.training.snapshots.writer import SaveResult

_FAILURE_TIMEOUT = 10.0  # seconds that a failed run waits for its pending snapshot


@dataclass(slots=True)
class BestTracker:
    """The best snapshot so far, by a metric that the script logs; the same on every rank.

    ``monitor`` is that of ``SnapshotPolicy``; None where no best snapshot is requested.

    Only what was logged at the very step of a snapshot counts for it: the accuracy of a model is not that of the model
    ten steps later. Raises ValueError where ``monitor`` names no metric.
    """

    monitor: str | None
    best: SnapshotScore | None = None  # of the best snapshot on disk
    logged: bool = False  # the metric was logged
    _value: float = math.nan
    _step: int = -1  # at which it was logged last

    def __post_init__(self) -> None:
        if self.monitor is not None:
            metric_of(self.monitor)

    def on_logged(self, points: list[MetricPoint]) -> None:
        """Note the metric in ``points``, which are averaged over the ranks."""
        if self.monitor is None:
            return
        name = metric_of(self.monitor)
        for point in points:
            if (value := point.values.get(name)) is not None:
                self.logged, self._value, self._step = True, value, point.step

    def score_of(self, step: int) -> SnapshotScore | None:
        """Score of a snapshot of ``step``, the one that was finished last; None where the metric was not logged."""
        if self.monitor is None or step != self._step or not math.isfinite(self._value):
            return None
        return SnapshotScore(self.monitor, self._value)

    def would_be_best(self, step: int) -> bool:
        """True where a snapshot of ``step`` would be the best."""
        score = self.score_of(step)
        return score is not None and score.is_better_than(self.best)

    def on_saved(self, score: SnapshotScore | None) -> None:
        """Note that a snapshot of ``score`` is on disk."""
        if score is not None and score.is_better_than(self.best):
            self.best = score


@dataclass(slots=True)
class AsyncSaver:
    """Saves a run; every method is called by all ranks at the same step boundary.

    ``capture`` returns the state that the ranks share and this rank's own, ``sample`` some of this rank's weights.
    """

    snapshots: Snapshots
    schedule: SnapshotSchedule
    progress: TrainingProgress
    capture: Callable[[], tuple[dict[str, Any], dict[str, Any]]]
    sample: Callable[[], WeightSample | None]
    validator: Validator
    best: BestTracker
    saved: Position | None  # of the latest snapshot on disk
    _position: Position | None = None  # of the pending snapshot
    _score: SnapshotScore | None = None  # of the pending snapshot
    _shm_cost: float | None = None  # seconds that training waited for the pending one, if it is in shared memory
    _seconds: float = 0.0  # that training has waited for snapshots, in total

    def async_save(self, *, to_shm: bool = False) -> None:
        """Copy the state and have it written, unless it is on disk already. Nothing may be pending."""
        position = self.progress.position
        if position == self.saved or (to_shm and not self.snapshots.has_shm):
            return
        started = time.monotonic()
        shared, own = self.capture()
        self._score, self._position = None if to_shm else self.best.score_of(position[0]), position
        self.snapshots.async_save(
            position[0], position[1], shared, own, validator=self.validator, score=self._score,
            sample=None if to_shm else self.sample(), to_shm=to_shm,
        )  # fmt: skip
        now = time.monotonic()
        blocked = now - started
        if to_shm:
            self._shm_cost = blocked
            self.schedule.on_copied(now, blocked)
        else:
            self.schedule.on_started(now, blocked)
        self._add_wait(blocked)

    def skip(self) -> None:
        """Skip a snapshot that is due while the one before is being written: training does not wait for the disk.

        One in shared memory is soon written, and must not cost a snapshot: it only delays it.
        """
        if self._shm_cost is not None:
            self.schedule.pending = True
            return
        self.snapshots.warn_skipped()
        self.schedule.last_at = time.monotonic()

    def wait(self) -> SaveResult | None:
        """Wait for the pending snapshot, if there is one. Raises what ``Snapshots.save`` does."""
        if not self.snapshots.pending:
            return None
        phase, started = reporter().phase, time.monotonic()
        if self.snapshots.in_progress:
            reporter().update_status(phase="snapshot")
        result = self.snapshots.wait()
        reporter().update_status(phase=phase)
        now = time.monotonic()
        self._add_wait(now - started)
        if result is not None and self._shm_cost is not None:
            self.schedule.on_copied(now, self._shm_cost + result.seconds)
        elif result is not None:
            self.schedule.overhead.finished(result.seconds)
            self.report_policy()
            if result.saved:
                self.saved = self._position
                self.best.on_saved(self._score)
        self._position = self._shm_cost = None
        return result

    def report_policy(self) -> None:
        """Show on the page how often snapshots are taken, and why."""
        if self.snapshots.is_coordinator:
            reporter().update_status(snapshot_policy=self.schedule.describe(time.monotonic()))

    def finish(self, *, succeeded: bool) -> None:
        """Free the shared memory after a success, where nothing is pending, if the disk is as recent.

        A failed run's pending snapshot may still be committed, if the other ranks have not failed too.
        """
        if not succeeded:
            with suppress(Exception):
                self.snapshots.wait(_FAILURE_TIMEOUT)
        elif self.progress.position == self.saved:
            self.snapshots.discard_shm()

    def _add_wait(self, seconds: float) -> None:
        self._seconds += seconds
        reporter().update_status(saving_seconds=round(self._seconds, 3))
