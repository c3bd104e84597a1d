"""The snapshots of a run beside its training: begun when due, collected when written."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rekindle.training.reporting import reporter
from rekindle.training.schedule import SnapshotSchedule
from rekindle.training.snapshot_writer import SaveResult
from rekindle.training.snapshots import Objection, Snapshots

Place = tuple[int, int, bool]
"""Tells two states of a training apart: step, epoch, and whether it is within the epoch or behind it."""

_PATIENCE = 10.0  # seconds that a failed run still gives a snapshot under way


@dataclass(slots=True)
class Saving:
    """Every method but ``writing`` is called by all ranks at the same step boundary.

    ``capture`` collects what the ranks share and what this one has for itself.
    """

    snapshots: Snapshots
    schedule: SnapshotSchedule
    place: Callable[[], Place]
    capture: Callable[[], tuple[dict[str, Any], dict[str, Any]]]
    objection: Objection
    durable: Place  # of the newest snapshot
    _begun: Place | None = None

    @property
    def writing(self) -> bool:
        """This rank still writes a snapshot."""
        return self.snapshots.writing

    def begin(self) -> None:
        """Copy the state and have it written, unless it is on disk already. Nothing may be under way."""
        place = self.place()
        if place == self.durable:
            return
        started = time.monotonic()
        shared, own = self.capture()
        self.snapshots.begin(place[0], place[1], shared, own, objection=self.objection)
        self._begun = place
        now = time.monotonic()
        self.schedule.tried(now, cost=now - started)

    def put_off(self) -> None:
        """A snapshot is due while the one before is being written: the training does not wait for the disk."""
        self.snapshots.put_off()
        self.schedule.put_off(time.monotonic())

    def collect(self) -> SaveResult | None:
        """The result of the snapshot under way, if there is one; waits for it. Raises what ``Snapshots.save`` does."""
        if not self.snapshots.begun:
            return None
        phase = reporter().phase
        if self.writing:
            reporter().place(phase="snapshot")
        result = self.snapshots.finish()
        reporter().place(phase=phase)
        if result is not None:
            self.schedule.written(result.seconds)
            if result.saved and self._begun is not None:
                self.durable = self._begun
        return result

    def abandon(self) -> None:
        """The run has failed: what is under way may still be committed, if the other ranks have not failed too."""
        with suppress(Exception):
            self.snapshots.finish(_PATIENCE)
