"""How long jobs run: by their time limits, and as measured of like-named jobs of the same owner."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from rekindle.contract.states import JobState
from rekindle_service.job_wording import like_name
from rekindle_service.store.mutations import is_stopping
from rekindle_service.store.tables import Job

UNKNOWN = math.inf  # seconds until something that nobody knows
_MEASURED = 10  # latest jobs of a name that count
_KEPT_NAMES = 2000
_OVERDUE = 60.0  # seconds that a job runs on after its time left is over, until that counts as wrong
DISPLACED_SECONDS = 30.0  # in which a job that is stopped for another has saved and left its slots


def seconds_of(job: Job) -> float | None:
    """How long a job ran, where that says how long others will: it succeeded and never went back to the queue."""
    if job.state is not JobState.SUCCEEDED or job.run != 1 or job.started_at is None or job.ended_at is None:
        return None
    return max(0.0, job.ended_at - job.started_at)


class Durations:
    """What was measured, by owner and name: of the latest jobs in the database, and of those that have ended since."""

    def __init__(self, read: Callable[[], Iterable[Job]]) -> None:
        """``read`` returns jobs that have succeeded, latest first."""
        self._read: Callable[[], Iterable[Job]] | None = read
        self._by_name: OrderedDict[tuple[str | None, str], list[float]] = OrderedDict()

    def of(self, job: Job) -> Sequence[float]:
        """Seconds, latest first; empty where no like-named job has succeeded."""
        if self._read is not None:
            found, self._read = list(self._read()), None
            for each in reversed(found):
                self._add(each)
        return self._by_name.get(_key(job), ())

    def add(self, job: Job) -> None:
        """A job has ended. Before anybody has asked for durations, it is among those that will be read."""
        if self._read is None:
            self._add(job)

    def _add(self, job: Job) -> None:
        seconds = seconds_of(job)
        if seconds is None:
            return
        known = self._by_name.setdefault(_key(job), [])
        self._by_name.move_to_end(_key(job))
        known.insert(0, seconds)
        del known[_MEASURED:]
        if len(self._by_name) > _KEPT_NAMES:
            self._by_name.popitem(last=False)


def _key(job: Job) -> tuple[str | None, str]:
    return job.owner, like_name(job.name)


@dataclass(frozen=True, slots=True)
class Forecast:
    """How long jobs run, in seconds; None where nobody knows. ``now``: seconds since the epoch.

    ``left`` is what running jobs report or print of their time left, by id, less the time since. It is an estimate of
    a script, which may be wrong by any factor: ``time_left`` and ``length``, which are only shown, believe it. What
    decides who starts (``max_seconds``, ``expected``, ``remaining``) does not. A job that starts before its turn
    because of an optimistic time left would delay the one that has a reservation.
    """

    durations: Durations
    now: float
    left: Mapping[str, float] = field(default_factory=dict)
    _totals: dict[tuple[str | None, str], list[float]] = field(default_factory=dict)

    def note_running(self, jobs: Iterable[Job]) -> None:
        """Expect queued jobs to run as long as running ones of their name that have a time left."""
        for job in jobs:
            if (left := self.left.get(job.id, -1.0)) >= 0:
                self._totals.setdefault(_key(job), []).append(self._ran(job) + left)

    def time_left(self, job: Job) -> float | None:
        """Until a job that holds slots probably leaves them, as it is shown: by its own time left, if it has one."""
        known, left = self.remaining(job), self.left.get(job.id)
        if left is None or left < -_OVERDUE or is_stopping(job):
            return known
        limit = job.spec.time_limit
        return max(1.0, left if limit is None else min(left, limit - self._ran(job)))

    def length(self, job: Job) -> float | None:
        """How long a queued job will probably run, as it is shown: also by like-named ones that still run."""
        known, totals = self.expected(job), self._totals.get(_key(job))
        if not totals or self.durations.of(job):
            return known
        return median(totals) if known is None else min(known, median(totals))

    def _ran(self, job: Job) -> float:
        begun = job.allocated_at or job.started_at
        return 0.0 if begun is None else max(0.0, self.now - begun)

    def max_seconds(self, job: Job) -> float | None:
        """Within what a queued job ends once it starts: its time limit, or the most that like-named ones took.

        It decides whether the job may start before its turn.
        """
        if job.spec.time_limit is not None:
            return job.spec.time_limit
        return max(self.durations.of(job), default=None)

    def expected(self, job: Job) -> float | None:
        """How long a queued job will probably run."""
        limit, measured = job.spec.time_limit, self.durations.of(job)
        if not measured:
            return limit
        return median(measured) if limit is None else min(limit, median(measured))

    def remaining(self, job: Job) -> float | None:
        """Until a job that holds slots probably leaves them.

        One that has run longer than the like-named ones took ends at its time limit, or nobody knows when.
        """
        if is_stopping(job):
            return DISPLACED_SECONDS
        ran, measured = self._ran(job), self.durations.of(job)
        bounds = [] if job.spec.time_limit is None else [job.spec.time_limit]
        bounds += [median(measured)] if measured else []
        left = [bound - ran for bound in bounds if bound > ran]
        if left:
            return min(left)
        return 1.0 if job.spec.time_limit is not None else None  # it is being stopped
