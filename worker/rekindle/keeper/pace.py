"""Which rank do the others wait for? Pure: sightings in, marks out.

In lockstep training every rank does as many steps a second, so a slow one does not show in its speed; it shows in that
the others stand in a collective that it has not begun. Looked at once a second, the share of such looks estimates the
share of the time that the others lose to it. Nobody is killed for it: slow is not hung.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

WINDOW = 20  # looks that the share is taken over
MARKED_FROM = 0.6  # share of the looks; two equal ranks wait for each other less than half of the time
CLEARED_BELOW = 0.4
COMPARABLE = 0.1  # by which the ranks' collectives may differ over the window; stages of a pipeline differ for ever
FEWEST = 10  # collectives within the window that make it lockstep at all


@dataclass(frozen=True, slots=True)
class Sighting:
    """One look at the world: the last collective that each rank has begun, and who was behind all that time."""

    begun: Mapping[int, int]
    behind: frozenset[int]


@dataclass(frozen=True, slots=True)
class Mark:
    """``rank`` is a straggler from now on, or (``share`` None) no longer."""

    rank: int
    share: float | None  # of the looks at which others waited for it


@dataclass(slots=True)
class Pace:
    """Feed it every sighting of one attempt."""

    _sightings: deque[Sighting] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _marked: set[int] = field(default_factory=set)

    def see(self, sighting: Sighting) -> list[Mark]:
        """What this sighting changes."""
        if self._sightings and self._sightings[-1].begun.keys() != sighting.begun.keys():
            self._sightings.clear()
        self._sightings.append(sighting)
        if len(self._sightings) < WINDOW or not self._in_lockstep():
            return []
        marks = [self._judge(rank) for rank in sorted(sighting.begun)]
        return [mark for mark in marks if mark is not None]

    def _judge(self, rank: int) -> Mark | None:
        share = sum(rank in each.behind for each in self._sightings) / WINDOW
        if share >= MARKED_FROM and rank not in self._marked:
            self._marked.add(rank)
            return Mark(rank, share)
        if share < CLEARED_BELOW and rank in self._marked:
            self._marked.discard(rank)
            return Mark(rank, None)
        return None

    def _in_lockstep(self) -> bool:
        first, last = self._sightings[0].begun, self._sightings[-1].begun
        made = [last[rank] - first[rank] for rank in last]
        return min(made, default=0) >= FEWEST and max(made) - min(made) <= COMPARABLE * max(made)


def stragglers_behind(before: Mapping[int, int], after: Mapping[int, int]) -> frozenset[int]:
    """Ranks that had not yet begun, when looked at again, what another had begun at the first look.

    Two looks, since the ranks are asked one after another: at one look the rank asked first seems to be behind.
    """
    leading = max(before.values(), default=0)
    return frozenset(rank for rank, begun in after.items() if begun < leading)
