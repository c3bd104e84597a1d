"""In which order queued jobs may start: priority, then fair share among owners, then first come. Pure.

Fair share in one sentence: of jobs of the same priority, the next one is that of the owner who has used the fewest
slot-seconds lately, and the jobs before it in the queue and the running ones count as if they had run already.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter

from rekindle_service.jobs.quotas import owner_of
from rekindle_service.store.tables import Job

ASSUMED_SECONDS = 3600.0
"""What a job counts for in the order, where how long it runs is not known."""

_by_number = attrgetter("number")


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
