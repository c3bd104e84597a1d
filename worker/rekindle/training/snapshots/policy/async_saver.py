"""The snapshots of a run: started when due, written during training, waited for before the next."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rekindle.contract.score import Score
from rekindle.training.data.progress import Position, Progress
from rekindle.training.reporting.reporter import reporter
from rekindle.training.snapshots.engine.snapshots import Snapshots, Validator
from rekindle.training.snapshots.engine.writer import SaveResult
from rekindle.training.snapshots.policy.best_tracker import BestTracker
from rekindle.training.snapshots.policy.schedule import SnapshotSchedule

_FAILURE_TIMEOUT = 10.0  # seconds that a failed run waits for its pending snapshot


@dataclass(slots=True)
class AsyncSaver:
    """Every method but ``in_progress`` is called by all ranks at the same step boundary.

    ``capture`` returns the state that the ranks share and this rank's own.
    """

    snapshots: Snapshots
    schedule: SnapshotSchedule
    progress: Progress
    capture: Callable[[], tuple[dict[str, Any], dict[str, Any]]]
    validator: Validator
    best: BestTracker
    saved: Position | None  # of the latest snapshot on disk
    _position: Position | None = None  # of the pending snapshot
    _score: Score | None = None  # of the pending snapshot
    _shm_cost: float | None = None  # seconds that training waited for the pending one, if it is in shared memory
    _seconds: float = 0.0  # that training has waited for snapshots, in total

    @property
    def in_progress(self) -> bool:
        """This rank still writes a snapshot."""
        return self.snapshots.in_progress

    def async_save(self, *, to_shm: bool = False) -> None:
        """Copy the state and have it written, unless it is on disk already. Nothing may be pending."""
        position = self.progress.position
        if position == self.saved or (to_shm and not self.snapshots.has_shm):
            return
        started = time.monotonic()
        shared, own = self.capture()
        self._score, self._position = None if to_shm else self.best.score_of(position[0]), position
        self.snapshots.async_save(
            position[0], position[1], shared, own, validator=self.validator, score=self._score, to_shm=to_shm
        )
        now = time.monotonic()
        blocked = now - started
        if to_shm:
            self._shm_cost = blocked
            self.schedule.on_copied(now, blocked)
        else:
            self.schedule.on_started(now, blocked)
        self._add_wait(blocked)

    def skip(self) -> None:
        """A snapshot is due while the one before is being written: the training does not wait for the disk.

        One in shared memory is soon written, and must not cost a snapshot: it only delays it.
        """
        if self._shm_cost is not None:
            self.schedule.pending = True
            return
        self.snapshots.warn_skipped()
        self.schedule.last_at = time.monotonic()

    def wait(self) -> SaveResult | None:
        """The result of the pending snapshot, if there is one. Raises what ``Snapshots.save`` does."""
        if not self.snapshots.pending:
            return None
        phase, started = reporter().phase, time.monotonic()
        if self.in_progress:
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
        """Nothing is pending after a success: free the shared memory if the disk is as recent.

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
