"""The time that a job may take."""

import time


class TimeLimit:
    """Counted from the first attempt of a run.

    What went before this keeper is known only by the clock on the wall; from its making on, setting that changes
    nothing.
    """

    def __init__(self, seconds: float | None, begun_at: float | None) -> None:
        """``begun_at``: seconds since the epoch when the run's first attempt began; None where it is about to."""
        gone = 0.0 if begun_at is None else max(time.time() - begun_at, 0.0)
        self._seconds, self._begun = seconds, time.monotonic() - gone

    @property
    def deadline(self) -> float | None:
        """In seconds of CLOCK_MONOTONIC; None where there is no limit."""
        return None if self._seconds is None else self._begun + self._seconds
