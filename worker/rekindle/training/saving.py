"""The snapshots of a run beside its training: begun when due, collected when written."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rekindle.contract.score import Score
from rekindle.training.best import BestSoFar
from rekindle.training.progress import Place, Progress
from rekindle.training.reporting import reporter
from rekindle.training.schedule import SnapshotSchedule
from rekindle.training.snapshot_writer import SaveResult
from rekindle.training.snapshots import Objection, Snapshots

_PATIENCE = 10.0  # seconds that a failed run still gives a snapshot under way


@dataclass(slots=True)
class Saving:
    """Every method but ``writing`` is called by all ranks at the same step boundary.

    ``capture`` collects what the ranks share and what this one has for itself.
    """

    snapshots: Snapshots
    schedule: SnapshotSchedule
    progress: Progress
    capture: Callable[[], tuple[dict[str, Any], dict[str, Any]]]
    objection: Objection
    best: BestSoFar
    durable: Place | None  # of the newest snapshot on disk
    _begun: Place | None = None
    _score: Score | None = None  # of the snapshot under way
    _copy_cost: float | None = None  # seconds that training waited for the copy in memory under way
    _seconds: float = 0.0  # that training has waited for snapshots, all in all

    @property
    def writing(self) -> bool:
        """This rank still writes a snapshot."""
        return self.snapshots.writing

    def begin(self) -> None:
        """Copy the state and have it written, unless it is on disk already. Nothing may be under way."""
        place = self.progress.place
        if place == self.durable:
            return
        started = time.monotonic()
        shared, own = self.capture()
        self._score = self.best.score_of(place[0])
        self.snapshots.begin(place[0], place[1], shared, own, objection=self.objection, score=self._score)
        self._begun = place
        now = time.monotonic()
        self.schedule.tried(now, blocked=now - started)
        self._has_waited(now - started)

    def begin_copy(self) -> None:
        """Copy the state into shared memory, unless it is on disk already. Nothing may be under way."""
        place = self.progress.place
        if place == self.durable or not self.snapshots.copies:
            return
        started = time.monotonic()
        shared, own = self.capture()
        self.snapshots.begin_copy(place[0], place[1], shared, own, objection=self.objection)
        now = time.monotonic()
        self._copy_cost = now - started
        self.schedule.copied(now, self._copy_cost)
        self._has_waited(self._copy_cost)

    def copy_due(self, now: float) -> bool:
        """Whether it is time for a copy in shared memory; ``now`` in seconds of CLOCK_MONOTONIC."""
        return self.snapshots.copies and self.schedule.copy_due(now)

    def put_off(self) -> None:
        """A snapshot is due while the one before is being written: the training does not wait for the disk.

        A copy in memory is soon written, and must not cost a snapshot: it only delays it.
        """
        if self._copy_cost is not None:
            self.schedule.owed = True
            return
        self.snapshots.put_off()
        self.schedule.put_off(time.monotonic())

    def collect(self) -> SaveResult | None:
        """The result of the snapshot under way, if there is one; waits for it. Raises what ``Snapshots.save`` does."""
        if not self.snapshots.begun:
            return None
        phase, started = reporter().phase, time.monotonic()
        if self.writing:
            reporter().place(phase="snapshot")
        result = self.snapshots.finish()
        reporter().place(phase=phase)
        self._has_waited(time.monotonic() - started)
        if result is not None and self._copy_cost is not None:
            self.schedule.copied(time.monotonic(), self._copy_cost + result.seconds)
        elif result is not None:
            self.schedule.written(result.seconds)
            self.report_policy()
            if result.saved:
                self.durable = self._begun
                self.best.saved(self._score)
        self._begun = self._copy_cost = None
        return result

    def _has_waited(self, seconds: float) -> None:
        self._seconds += seconds
        reporter().place(saving_seconds=round(self._seconds, 3))

    def report_policy(self) -> None:
        """Let the page say how often snapshots are taken, and why."""
        if self.snapshots.leads:
            reporter().place(snapshot_policy=self.schedule.describe(time.monotonic()))

    def forget_copies(self) -> None:
        """At the end of a training: the copy in shared memory is of no use if the disk is as new."""
        if self.progress.place == self.durable:
            self.snapshots.forget_copies()

    def abandon(self) -> None:
        """The run has failed: what is under way may still be committed, if the other ranks have not failed too."""
        with suppress(Exception):
            self.snapshots.finish(_PATIENCE)
