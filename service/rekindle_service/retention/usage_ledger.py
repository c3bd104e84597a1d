"""``UsageLedger``: the space of every job and its sums by owner, kept while jobs change, never added up again."""

from bisect import bisect_left, insort
from collections.abc import KeysView
from dataclasses import dataclass, field, fields

_MANY = 1000  # changes after which the order is made again


@dataclass(slots=True)
class JobUsage:
    """Bytes on the disk: a file with holes counts as what is left of it, one with several names as one."""

    snapshots: int = 0
    logs: int = 0  # output, metrics and stacks of all attempts
    code: int = 0  # the copy of the code, and what the script has written next to it
    other: int = 0

    @property
    def total(self) -> int:
        return self.snapshots + self.logs + self.code + self.other

    def add(self, other: "JobUsage", sign: int = 1) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + sign * getattr(other, each.name))


@dataclass(slots=True)
class OwnerUsage:
    """The jobs of one owner."""

    jobs: int = 0
    measured: int = 0
    usage: JobUsage = field(default_factory=JobUsage)


Place = tuple[int, int, str, str | None]
"""Bytes (negative), number, id and owner of a job: the largest job comes first."""


@dataclass(slots=True)
class _Job:
    number: int
    owner: str | None
    usage: JobUsage | None = None
    place: Place | None = None  # in the order; None: not in it yet


class UsageLedger:
    """Not thread-safe. A change takes no time that depends on the number of jobs, but for moving a list."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}
        self._order: list[Place] = []
        self._moved: set[str] = set()  # jobs whose place in the order is to be found
        self.owners: dict[str | None, OwnerUsage] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def keys(self) -> KeysView[str]:
        return self._jobs.keys()

    def usage(self, job_id: str) -> JobUsage | None:
        """None where the job was not measured yet, or is unknown."""
        job = self._jobs.get(job_id)
        return None if job is None else job.usage

    def add(self, job_id: str, number: int, owner: str | None) -> None:
        """Know a job; nothing changes where it is known."""
        if job_id in self._jobs:
            return
        self._jobs[job_id] = _Job(number, owner)
        self.owners.setdefault(owner, OwnerUsage()).jobs += 1
        self._moved.add(job_id)

    def set(self, job_id: str, usage: JobUsage) -> None:
        """What was measured of a known job."""
        job = self._jobs[job_id]
        if job.usage == usage:
            return
        self._count(job, -1)
        job.usage = usage
        self._count(job, 1)
        self._moved.add(job_id)

    def remove(self, job_id: str) -> None:
        job = self._jobs.pop(job_id, None)
        if job is None:
            return
        self._count(job, -1)
        owner = self.owners[job.owner]
        owner.jobs -= 1
        if not owner.jobs:
            del self.owners[job.owner]
        self._moved.discard(job_id)
        self._leave(job)

    def largest(self) -> list[Place]:
        """All jobs, the largest first. Not to be changed."""
        moved, self._moved = self._moved, set()
        if len(moved) > _MANY:
            for job_id, job in self._jobs.items():
                job.place = _place(job_id, job)
            self._order = sorted(job.place for job in self._jobs.values() if job.place is not None)
        else:
            for job_id in moved:
                job = self._jobs[job_id]
                self._leave(job)
                job.place = _place(job_id, job)
                insort(self._order, job.place)
        return self._order

    def _leave(self, job: _Job) -> None:
        if job.place is not None:
            del self._order[bisect_left(self._order, job.place)]

    def _count(self, job: _Job, sign: int) -> None:
        if job.usage is not None:
            owner = self.owners[job.owner]
            owner.measured += sign
            owner.usage.add(job.usage, sign)


def _place(job_id: str, job: _Job) -> Place:
    return -job.usage.total if job.usage is not None else 0, job.number, job_id, job.owner
