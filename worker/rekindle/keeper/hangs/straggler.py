"""Which rank do the others wait for? Pure: samples in, events out.

In lockstep training every rank does as many steps a second, so a slow one does not show in its speed; it shows in that
the others wait in a collective that it has not enqueued. Sampled once a second, the share of such samples estimates the
share of the time that the others lose to it. Nobody is killed for it: slow is not hung.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

WINDOW = 20  # samples
MARKED_FROM = 0.6  # share of the samples; two equal ranks wait for each other less than half of the time
CLEARED_BELOW = 0.4
LOCKSTEP_TOLERANCE = 0.1  # by which the ranks' collectives may differ over the window; pipeline stages always differ
MIN_COLLECTIVES = 10  # within the window, for it to be lockstep at all


@dataclass(frozen=True, slots=True)
class CollectiveSample:
    """The last collective that each rank has enqueued, and which ranks lagged all that time."""

    enqueued: Mapping[int, int]
    lagging: frozenset[int]


@dataclass(frozen=True, slots=True)
class StragglerEvent:
    """``rank`` is a straggler from now on, or (``share`` None) no longer."""

    rank: int
    share: float | None  # of the samples in which others waited for it


@dataclass(slots=True)
class StragglerDetector:
    """Add every sample of one attempt."""

    _samples: deque[CollectiveSample] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _marked: set[int] = field(default_factory=set)

    def add(self, sample: CollectiveSample) -> list[StragglerEvent]:
        """Add a sample; returns what it changes."""
        if self._samples and self._samples[-1].enqueued.keys() != sample.enqueued.keys():
            self._samples.clear()
        self._samples.append(sample)
        if len(self._samples) < WINDOW or not self._in_lockstep():
            return []
        events = [self._update(rank) for rank in sorted(sample.enqueued)]
        return [event for event in events if event is not None]

    def _update(self, rank: int) -> StragglerEvent | None:
        share = sum(rank in each.lagging for each in self._samples) / WINDOW
        if share >= MARKED_FROM and rank not in self._marked:
            self._marked.add(rank)
            return StragglerEvent(rank, share)
        if share < CLEARED_BELOW and rank in self._marked:
            self._marked.discard(rank)
            return StragglerEvent(rank, None)
        return None

    def _in_lockstep(self) -> bool:
        first, last = self._samples[0].enqueued, self._samples[-1].enqueued
        made = [last[rank] - first[rank] for rank in last]
        return min(made, default=0) >= MIN_COLLECTIVES and max(made) - min(made) <= LOCKSTEP_TOLERANCE * max(made)


@dataclass(slots=True)
class WaitShares:
    """Share of the samples, since it was last taken, in which each rank waited for another."""

    _samples: int = 0
    _waited: dict[int, int] = field(default_factory=dict)  # samples, by rank

    def add(self, sample: CollectiveSample) -> None:
        self._samples += 1
        for rank in sample.enqueued:
            waits = bool(sample.lagging) and rank not in sample.lagging
            self._waited[rank] = self._waited.get(rank, 0) + waits

    def take(self) -> dict[int, float]:
        """Take the shares, 0 to 1, by rank; empty where no sample has come."""
        shares = {rank: waited / self._samples for rank, waited in self._waited.items()}
        self._samples, self._waited = 0, {}
        return shares


def lagging_ranks(before: Mapping[int, int], after: Mapping[int, int]) -> frozenset[int]:
    """Ranks that had not yet enqueued, at the second query, what another had at the first.

    Two queries, since the ranks are queried one after another: in one, the rank queried first seems to lag.
    """
    highest = max(before.values(), default=0)
    return frozenset(rank for rank, enqueued in after.items() if enqueued < highest)
