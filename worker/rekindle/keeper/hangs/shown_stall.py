"""The lack of progress that is shown long before it counts as a hang, and when to find its culprit again."""

import time
from dataclasses import dataclass

from rekindle.keeper.attempt_result import Culprit, Stall
from rekindle.keeper.buffered_journal import journal_time

_INTERVAL = 5.0  # seconds between two searches for the culprit
_CONFIRMED = 2  # searches
_TOLERANCE = 2.0  # seconds by which the time of a verdict may move unnoticed


@dataclass(slots=True)
class ShownStall:
    """The stall that is shown of one attempt; ``show`` and ``end`` return whether that has changed."""

    stall: Stall | None = None
    waits_for_limit: bool = False  # which the user has set, whatever is certain
    _due: float = 0.0  # seconds of CLOCK_MONOTONIC
    _certain: int = 0  # searches in a row

    def is_due(self) -> bool:
        """Whether it is time to find the culprit; if so, the next time is later."""
        if (now := time.monotonic()) < self._due:
            return False
        self._due = now + _INTERVAL
        return True

    @property
    def is_certain(self) -> bool:
        """Whether two searches in a row have found that no rank can continue: a hang, however short it was so far."""
        return self._certain >= _CONFIRMED

    def confirm(self, culprit: Culprit) -> None:
        """Note what a search has found."""
        self._certain = self._certain + 1 if culprit.is_certain and not self.waits_for_limit else 0

    def show(self, culprit: Culprit, seconds: float, left: float) -> bool:
        """Show that there was no progress for ``seconds``, which counts as a hang in ``left`` seconds at most."""
        self.confirm(culprit)
        if self._certain:
            left = min(left, _INTERVAL * max(_CONFIRMED - self._certain, 0))
        before, found = self.stall, Stall(journal_time() - seconds, journal_time() + left, culprit)
        moved = before is None or abs(found.hung_at - before.hung_at) > _TOLERANCE
        if before is not None and not moved and found.culprit == before.culprit:
            return False
        self.stall = found
        return True

    def end(self) -> bool:
        """Show no stall any more: there is progress."""
        before, self.stall, self._certain = self.stall, None, 0
        return before is not None
