"""When the next snapshot is due."""

import json
from dataclasses import dataclass, replace

from rekindle.contract.spec import Cadence

_DEFAULT = Cadence(every_seconds=10.0, every_epochs=1)
_LEAST_RATIO = 20  # of training time to the time it waits for saving, where nobody said how often to save
_COPY_INTERVAL = 0.5  # seconds between two copies in shared memory
_LEAST_WRITE_RATIO = 2  # of any time to writing time, likewise: writing takes processor time from the ranks


def chosen_cadence(own: Cadence, from_job: str | None) -> tuple[Cadence, bool]:
    """The cadence in force, and whether it is the default one.

    ``own`` is what the script says; ``from_job``, the JSON that the job's submitter gave, goes before it.
    """
    job = None if from_job is None else Cadence(**json.loads(from_job))
    for cadence in (job, own):
        if cadence is not None and _is_set(cadence):
            return cadence, False
    return replace(_DEFAULT, keep=(job or own).keep), True


def _is_set(cadence: Cadence) -> bool:
    return any(value is not None for value in (cadence.every_steps, cadence.every_seconds, cadence.every_epochs))


@dataclass(slots=True)
class SnapshotSchedule:
    """Rank 0's clock for snapshots. Times are seconds of CLOCK_MONOTONIC."""

    cadence: Cadence
    adapts: bool  # save less often where saving is slow
    last_at: float
    last_cost: float = 0.0
    last_writing: float = 0.0
    owed: bool = False  # one was due and is to follow at the next step that can take it
    copied_at: float = 0.0
    copy_cost: float = 0.0  # waiting and writing

    def due_after_step(self, step: int, now: float) -> bool:
        """Whether a snapshot is to follow ``step``, counted from 1."""
        steps = self.cadence.every_steps
        return self.owed or (steps is not None and step % steps == 0) or self._due_by_time(now)

    def due_after_epoch(self, epoch: int, now: float) -> bool:
        """Whether a snapshot is to follow ``epoch``, counted from 0."""
        epochs = self.cadence.every_epochs
        return (epochs is not None and (epoch + 1) % epochs == 0) or self._due_by_time(now)

    def tried(self, now: float, cost: float) -> None:
        """A snapshot was begun: the next one is due an interval from ``now``. ``cost`` in seconds of training."""
        self.last_at, self.last_cost, self.owed = now, cost, False

    def put_off(self, now: float) -> None:
        """A snapshot was left out: the next one is due an interval from ``now``."""
        self.last_at = now

    def written(self, seconds: float) -> None:
        """A snapshot was written beside the training, or failed, in so many seconds."""
        self.last_writing = seconds

    def copy_due(self, now: float) -> bool:
        """Whether a copy in shared memory is to be taken; it costs one part in ``_LEAST_RATIO`` of the time at most."""
        return now - max(self.last_at, self.copied_at) >= max(_COPY_INTERVAL, self.copy_cost * _LEAST_RATIO)

    def copied(self, now: float, cost: float) -> None:
        """A copy was begun or, a moment before ``now``, written; either part adds to its ``cost``, in seconds."""
        self.copied_at, self.copy_cost = now, cost

    def _due_by_time(self, now: float) -> bool:
        seconds = self.cadence.every_seconds
        if seconds is None:
            return False
        least = max(self.last_cost * _LEAST_RATIO, self.last_writing * _LEAST_WRITE_RATIO) if self.adapts else 0.0
        return now - self.last_at >= max(seconds, least)
