"""Who may start before their turn (EASY backfill), and when those that wait will start. Pure; seconds from now.

The first job of each kind of device that does not fit gets a reservation: certain slots from a certain time on. A later
job may have any of these slots only if it ends before that time. So none starts that would delay the reservation.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rekindle.contract.job_options import LinkRule
from rekindle_service.machine.slots import Link, Slot, choose_slots, slots_with_room
from rekindle_service.store.tables import Job

UNKNOWN = math.inf


@dataclass(frozen=True, slots=True)
class Reservation:
    """``job`` will start after ``at`` seconds on ``slots``; ``last`` is the job that has to end for that.

    ``at`` is ``UNKNOWN`` where too few jobs end at a known time: then these are all slots that it could get.
    """

    job: Job
    slots: frozenset[str]
    at: float
    last: Job | None = None

    def permits(self, slot: str, seconds: float | None) -> bool:
        """Whether a job that ends within ``seconds`` (None: nobody knows) may have ``slot`` now."""
        return slot not in self.slots or (seconds is not None and seconds <= self.at)


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that holds ``share`` of each of ``slots`` for ``seconds`` more (``UNKNOWN``: nobody knows)."""

    job: Job
    slots: Sequence[str]
    share: float
    seconds: float


def reserve(
    job: Job, slots: Sequence[Slot], free: Mapping[str, float], holders: Iterable[Holder], links: Sequence[Link]
) -> Reservation:
    """The earliest time at which the job fits. ``slots`` are those that it may ever get; ``free``: see ``shares``."""
    spec, shares = job.spec, dict(free)
    latest: dict[str, float] = {}
    for holder in sorted(holders, key=lambda each: each.seconds):
        if holder.seconds == UNKNOWN:
            break
        for name in holder.slots:
            shares[name] = min(1.0, shares.get(name, 0.0) + holder.share)
            latest[name] = holder.seconds
        usable = slots_with_room(slots, shares, spec.gpu_share)
        if latest.keys() & {slot.name for slot in usable}:
            chosen = _latest_freed(job, usable, latest, links)
            if chosen is not None:
                return Reservation(job, frozenset(chosen), holder.seconds, holder.job)
    return Reservation(job, frozenset(slot.name for slot in slots), UNKNOWN)


def _latest_freed(
    job: Job, usable: Sequence[Slot], latest: Mapping[str, float], links: Sequence[Link]
) -> list[str] | None:
    """Slots for the reservation: those that become free last, so that the others stay free for jobs before it."""
    count = job.spec.min_devices
    if job.spec.links is not LinkRule.PREFERRED:
        chosen = choose_slots(usable, count, links, job.spec.links)
        return None if chosen is None else [slot.name for slot in chosen]
    if len(usable) < count:
        return None
    by_time = sorted(usable, key=lambda slot: (-latest.get(slot.name, 0.0), -slot.index))
    return [slot.name for slot in by_time[:count]]


class Timeline:
    """When the jobs that wait will start, if each runs as long as expected and none starts before its turn.

    Slots that are shared count as whole ones, so that an estimate is rather late than early.
    """

    def __init__(self, slots: Iterable[Slot], holders: Iterable[Holder]) -> None:
        self._free_at = {slot.name: 0.0 for slot in slots}
        for holder in holders:
            self.hold(holder)

    def hold(self, holder: Holder) -> None:
        """A job has, or gets, slots now."""
        for name in holder.slots:
            if name in self._free_at:
                self._free_at[name] = max(self._free_at[name], holder.seconds)

    def add(self, job: Job, slots: Iterable[Slot], expected: Callable[[Job], float | None], at: float = 0.0) -> float:
        """Seconds until the job starts, not before ``at``; ``UNKNOWN`` where nobody knows."""
        names = sorted((slot.name for slot in slots if slot.name in self._free_at), key=self._free_at.__getitem__)
        chosen = names[: job.spec.min_devices]
        if len(chosen) < job.spec.min_devices:
            return UNKNOWN
        start = max(at, self._free_at[chosen[-1]])
        seconds = expected(job)
        for name in chosen:
            self._free_at[name] = UNKNOWN if seconds is None else start + seconds
        return start
