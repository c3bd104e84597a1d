"""In which order queued jobs may start: priority, then fair share among owners, then first come.

Fair share in one sentence: of jobs of the same priority, the next one is that of the owner who has used the fewest
slot-seconds lately, and the jobs before it in the queue and the running ones count as if they had run already.
"""

import heapq
import math
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter

from rekindle.contract.states import JobIntent
from rekindle_service.jobs.quotas import decayed, owner_of, slots_by_owner, slots_of, slots_wanted
from rekindle_service.scheduler.durations import Forecast
from rekindle_service.store.queue_store import QueueStore
from rekindle_service.store.tables import Job, SlotUsage

ASSUMED_SECONDS = 3600.0
"""What a job counts for in the order, where how long it runs is not known."""

_by_number = attrgetter("number")
_STEP = 10.0  # seconds between two additions, while the holders stay the same
_WRITE_INTERVAL = 60.0  # seconds between two writes; a server that is killed loses as much
_MAX_ABSENCE = 30 * 86400.0  # seconds without a server that are counted at most: a clock may have jumped


class QueueIndex:
    """Queued jobs by priority and owner. Adding, replacing and removing one does not depend on how many there are."""

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        self._jobs: dict[str, Job] = {}
        self._lines: dict[int, dict[str, list[Job]]] = {}  # by priority and owner, each by number
        for job in jobs:
            self.put(job)

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def get(self, job_id: str) -> Job | None:
        return self._jobs.get(job_id)

    def put(self, job: Job) -> None:
        """Add a job, or replace what was known of it."""
        self.remove(job.id)
        self._jobs[job.id] = job
        insort(self._lines.setdefault(job.priority, {}).setdefault(owner_of(job), []), job, key=_by_number)

    def remove(self, job_id: str) -> None:
        job = self._jobs.pop(job_id, None)
        if job is None:
            return
        lines, owner = self._lines[job.priority], owner_of(job)
        line = lines[owner]
        del line[bisect_left(line, job.number, key=_by_number)]
        if not line:
            del lines[owner]
        if not lines:
            del self._lines[job.priority]

    def ordered(
        self, used: Mapping[str, float], cost: Callable[[Job], float], counts: Callable[[Job], bool] = lambda _: True
    ) -> Iterator[Job]:
        """Every job, the next one first, computed only as far as it is read.

        ``used``: slot-seconds by owner, with what running jobs are going to use. ``cost``: slot-seconds that a job is
        going to use; those that do not count (``counts``), such as held ones, cost their owner nothing. The index must
        not change meanwhile.
        """
        committed = dict(used)
        for priority in sorted(self._lines, reverse=True):
            lines = {owner: iter(line) for owner, line in self._lines[priority].items()}
            heap: list[tuple[float, int, str, Job]] = []
            for owner, line in lines.items():
                first = next(line)
                heap.append((committed.get(owner, 0.0), first.number, owner, first))
            heapq.heapify(heap)
            while heap:
                _, _, owner, job = heap[0]
                yield job
                if counts(job):
                    committed[owner] = committed.get(owner, 0.0) + cost(job)
                following = next(lines[owner], None)
                if following is None:
                    heapq.heappop(heap)
                else:
                    heapq.heapreplace(heap, (committed.get(owner, 0.0), following.number, owner, following))


def fair_order(
    queued: QueueIndex, holding: Iterable[Job], used: Mapping[str, float], forecast: Forecast
) -> Iterator[Job]:
    """The queue, next job first. ``used``: slot-seconds by owner until now."""
    committed = dict(used)
    for job in holding:
        left = forecast.remaining(job)
        seconds = slots_of(job) * (ASSUMED_SECONDS if left is None else left)
        committed[owner_of(job)] = committed.get(owner_of(job), 0.0) + seconds

    def cost(job: Job) -> float:
        seconds = forecast.expected(job)
        return slots_wanted(job.spec) * (ASSUMED_SECONDS if seconds is None else seconds)

    return queued.ordered(committed, cost, _counts)


def _counts(job: Job) -> bool:
    """Held jobs do not run soon."""
    return job.intent is JobIntent.RUN


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
