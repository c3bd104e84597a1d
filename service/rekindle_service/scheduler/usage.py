"""How much each owner has used: slot-seconds that decay, so that the past counts less and less."""

import math
import time
from collections.abc import Iterable, Mapping

from rekindle_service.jobs.quotas import decayed, owner_of, slots_by_owner, slots_of
from rekindle_service.store.queue_store import QueueStore
from rekindle_service.store.tables import Job, SlotUsage

_STEP = 10.0  # seconds between two additions, while the holders stay the same
_WRITE_INTERVAL = 60.0  # seconds between two writes; a server that is killed loses as much
_MAX_ABSENCE = 30 * 86400.0  # seconds without a server that are counted at most: a clock may have jumped


class UsageMeter:
    """Counts while the server runs, by the monotonic clock: a wall clock that is set changes nothing.

    ``half_life`` is in seconds. Precondition of all methods: one thread calls them.
    """

    def __init__(self, store: QueueStore, half_life: float) -> None:
        self._store, self._half_life = store, half_life
        self._used: dict[str, float] = {}
        self._held: dict[str, float] = {}
        self._counted_at: float | None = None  # time.monotonic()
        self._written_at = 0.0  # likewise

    @property
    def slot_seconds(self) -> Mapping[str, float]:
        """By owner, decayed."""
        return self._used

    def is_due(self, now: float) -> bool:
        """Whether ``count`` has something to add though the holders are the same. ``now``: time.monotonic()."""
        return self._counted_at is None or (bool(self._used or self._held) and now - self._counted_at >= _STEP)

    def count(self, holding: Iterable[Job], now: float) -> None:
        """Add what has been used since the last call by those who held slots then; ``now``: time.monotonic()."""
        if self._counted_at is None:
            self._begin(holding, now)
        seconds = now - (now if self._counted_at is None else self._counted_at)
        held = slots_by_owner(holding)
        self._used = step(self._used, self._held, seconds, self._half_life)
        ended = not held and bool(self._held)
        self._held, self._counted_at = held, now
        if self._used and (ended or now - self._written_at >= _WRITE_INTERVAL):
            self.write(now)

    def close(self) -> None:
        """Keep what was counted since the last write. Raises StorageError."""
        if self._counted_at is not None and self._used:
            now = time.monotonic()
            self._used = step(self._used, self._held, now - self._counted_at, self._half_life)
            self._counted_at = now
            self.write(now)

    def write(self, now: float) -> None:
        """Keep what is counted. Raises StorageError."""
        self._store.set_usage(self._used, time.time())
        self._written_at = now

    def _begin(self, holding: Iterable[Job], now: float) -> None:
        """What was stored, and what jobs have held while no server ran."""
        stored, wall = self._store.usage(), time.time()
        self._used = used_since(stored, holding, wall, self._half_life)
        self._written_at = now


def step(used: Mapping[str, float], held: Mapping[str, float], seconds: float, half_life: float) -> dict[str, float]:
    """``used`` after ``seconds`` more in which each owner had ``held`` slots."""
    factor = math.exp2(-seconds / half_life)
    return {owner: used.get(owner, 0.0) * factor + held.get(owner, 0.0) * seconds for owner in {**used, **held}}


def used_since(
    stored: Mapping[str, SlotUsage], holding: Iterable[Job], wall: float, half_life: float
) -> dict[str, float]:
    """What is stored, decayed until ``wall`` (seconds since the epoch), and what ``holding`` have used meanwhile."""
    used = {owner: decayed(usage, wall, half_life) for owner, usage in stored.items()}
    for job in holding:
        owner = owner_of(job)
        counted = stored[owner].at if owner in stored else 0.0
        since = max(counted, job.allocated_at or job.started_at or wall)
        seconds = min(max(0.0, wall - since), _MAX_ABSENCE)
        used[owner] = used.get(owner, 0.0) + slots_of(job) * seconds
    return used
