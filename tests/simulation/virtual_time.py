"""Jobs in virtual time: the real order, allocation, backfill and preemption, or a reference in their place."""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, quantiles

from job_examples import a_job
from rekindle.contract.states import JobState
from rekindle_service.config.settings import Preemption
from rekindle_service.jobs.quotas import Quotas, owner_of, slots_by_owner
from rekindle_service.machine.slots import Machine
from rekindle_service.scheduler.allocation import Allocation, AllocationState, allocate
from rekindle_service.scheduler.displacer import DisplacementRules, displacements
from rekindle_service.scheduler.durations import Durations, Forecast
from rekindle_service.scheduler.fair_share import QueueIndex, fair_order, step
from rekindle_service.store.tables import Job
from simulation.workload import TraceJob

HALF_LIFE = 7 * 86400.0
DRAIN_SECONDS = 5.0  # from the request until the slots are free
RESUME_SECONDS = 20.0  # that an interrupted job needs to come to where it was
MIN_RUN = 60.0
_LIMIT = 24 * 3600.0  # that a reference assumes of a job without a time limit


@dataclass(slots=True)
class Outcome:
    """Times of one job: ``started`` is when it got slots first."""

    job: TraceJob
    started: float
    ended: float
    interruptions: int = 0

    @property
    def waited(self) -> float:
        return self.started - self.job.submitted


@dataclass(slots=True)
class Result:
    outcomes: list[Outcome] = field(default_factory=list)
    slots: int = 0

    @property
    def makespan(self) -> float:
        return max(each.ended for each in self.outcomes) - min(each.job.submitted for each in self.outcomes)

    @property
    def utilisation(self) -> float:
        """Part of all slot-seconds that did work, 0 to 1."""
        work = sum(each.job.seconds * each.job.slots for each in self.outcomes)
        return work / (self.slots * self.makespan)

    def waits(self, chosen: Callable[[TraceJob], bool] = lambda _: True) -> list[float]:
        return [each.waited for each in self.outcomes if chosen(each.job)]

    def slowdown(self) -> float:
        """Mean bounded slowdown: (wait + run) / run, where a run counts as ten minutes at least."""
        return fmean(
            max(1.0, (each.ended - each.job.submitted) / max(each.job.seconds, 600.0)) for each in self.outcomes
        )

    def row(self) -> dict[str, float]:
        """Hours but for the first two and the last two."""
        waits = [wait / 3600 for wait in self.waits()]
        return {
            "use %": 100 * self.utilisation,
            "slowdown": self.slowdown(),
            "mean wait": fmean(waits),
            "median": median(waits),
            "p95": quantiles(waits, n=20)[-1] if len(waits) > 1 else waits[0],
            "longest": max(waits),
            "makespan": self.makespan / 3600,
            "stopped": sum(each.interruptions for each in self.outcomes),
        }


Check = Callable[[Sequence[Job], AllocationState, Allocation], None]


class Simulation:
    """The scheduler's own functions on rows that exist only here. ``check`` sees every allocation."""

    def __init__(
        self,
        trace: Sequence[TraceJob],
        machine: Machine,
        *,
        quotas: Quotas | None = None,
        preemption: Preemption = "all",
        check: Check = lambda *_: None,
    ) -> None:
        self.machine, self._check = machine, check
        self.quotas = quotas or Quotas()
        self._rules = DisplacementRules(preemption=preemption, min_run=MIN_RUN, quotas=self.quotas)
        self._trace = {job.number: job for job in trace}
        self._left = {job.number: job.seconds for job in trace}
        self._events: list[tuple[float, int, int, str]] = []
        for job in trace:
            self._at(job.submitted, job.number, "submit")
        self._rows: dict[int, Job] = {}
        self.queued, self.holding = QueueIndex(), dict[int, Job]()
        self.durations = Durations(list)
        self._used: dict[str, float] = {}
        self.now = min((job.submitted for job in trace), default=0.0)
        self.result = Result(slots=len(machine.slots))
        self._outcomes: dict[int, Outcome] = {}

    def run(self) -> Result:
        while self._events:
            at = self._events[0][0]
            self._used = step(self._used, slots_by_owner(self.holding.values()), at - self.now, HALF_LIFE)
            self.now = at
            while self._events and self._events[0][0] <= at:
                _, _, number, what = heapq.heappop(self._events)
                self._happen(number, what)
            self._plan()
        return self.result

    def _at(self, time: float, number: int, what: str) -> None:
        heapq.heappush(self._events, (time, len(self._events), number, what))

    def _happen(self, number: int, what: str) -> None:
        match what.partition(" "):
            case ("submit", _, _):
                self._submit(self._trace[number])
            case ("end", _, run) if (row := self.holding.get(number)) and row.run == int(run):
                self._end(row)
            case ("drained", _, run) if (row := self.holding.get(number)) and row.run == int(run):
                self._requeue(row)

    def _submit(self, job: TraceJob) -> None:
        row = a_job(
            id=f"trace{job.number:05d}",
            number=job.number,
            name=job.name,
            owner=job.owner,
            priority=job.priority,
            min_ranks=job.slots,
            max_ranks=job.slots,
            time_limit=job.limit,
            device=self.machine.slots[0].device,
            created_at=job.submitted,
        )
        self._rows[job.number] = row
        self.queued.put(row)

    def _end(self, row: Job) -> None:
        del self.holding[row.number]
        row.state, row.ended_at, row.devices = JobState.SUCCEEDED, self.now, []
        self.durations.add(row)
        self._outcomes[row.number].ended = self.now
        self.result.outcomes.append(self._outcomes[row.number])

    def _requeue(self, row: Job) -> None:
        """After a drain: what it has done is saved."""
        del self.holding[row.number]
        done = self.now - (row.allocated_at or 0.0) - (RESUME_SECONDS if row.run > 1 else 0.0)
        self._left[row.number] -= max(0.0, done)
        row.state, row.devices, row.displaced = JobState.QUEUED, [], None
        self._outcomes[row.number].interruptions += 1
        self.queued.put(row)

    def _plan(self) -> None:
        holding = list(self.holding.values())
        forecast = Forecast(self.durations, self.now)
        situation = AllocationState(
            self.machine,
            holding,
            remaining=forecast.remaining,
            max_seconds=forecast.max_seconds,
            expected=forecast.expected,
            quotas=self.quotas,
        )
        queue = list(fair_order(self.queued, holding, self._used, forecast))
        made = allocate(iter(queue), situation)
        self._check(queue, situation, made)
        for row, devices in made.starts:
            self._start(row, devices)
        self._displace(made.waiting_head)

    def _start(self, row: Job, devices: list[str]) -> None:
        self.queued.remove(row.id)
        row.state, row.devices, row.run = JobState.RUNNING, devices, row.run + 1
        row.allocated_at = row.devices_since = row.snapshot_at = self.now
        row.started_at = row.started_at or self.now
        self.holding[row.number] = row
        self._outcomes.setdefault(row.number, Outcome(self._trace[row.number], self.now, math.nan))
        again = RESUME_SECONDS if row.run > 1 else 0.0
        self._at(self.now + self._left[row.number] + again, row.number, f"end {row.run}")

    def _displace(self, waiting: Sequence[Job]) -> None:
        holding = list(self.holding.values())
        plan = displacements(holding, waiting, self.machine, self.now, self._rules)
        for each in plan:
            each.job.displaced = {"kind": each.kind, "by": each.by, "reason": each.reason, "at": self.now}
            self._at(self.now + DRAIN_SECONDS, each.job.number, f"drained {each.job.run}")
        young = [row.devices_since + MIN_RUN for row in holding if self.now < (row.devices_since or 0) + MIN_RUN]
        if waiting and young and any(row.priority for row in waiting):
            self._at(min(young), 0, "look")


def reference(trace: Iterable[TraceJob], slots: int, *, backfill: bool) -> Result:
    """First come, first served, or EASY backfill by time limits, written independently of the scheduler's code."""
    waiting: list[TraceJob] = []
    running: list[tuple[float, float, TraceJob]] = []  # real end, end by its limit, job
    arrivals = sorted(trace, key=lambda job: (job.submitted, job.number))
    result, free, now = Result(slots=slots), slots, 0.0

    def start(job: TraceJob) -> None:
        nonlocal free
        waiting.remove(job)
        free -= job.slots
        running.append((now + job.seconds, now + (job.limit or _LIMIT), job))
        result.outcomes.append(Outcome(job, now, now + job.seconds))

    while arrivals or running:
        now = min([*(arrivals[0].submitted for _ in arrivals[:1]), *(end for end, _, _ in running)])
        while arrivals and arrivals[0].submitted <= now:
            waiting.append(arrivals.pop(0))
        free += sum(job.slots for end, _, job in running if end <= now)
        running = [each for each in running if each[0] > now]
        while waiting and waiting[0].slots <= free:
            start(waiting[0])
        if waiting and backfill:
            shadow, extra = _shadow(waiting[0], free, running)
            for job in waiting[1:]:
                fits_before = now + (job.limit or _LIMIT) <= shadow
                if job.slots <= (free if fits_before else min(free, extra)):
                    extra -= 0 if fits_before else job.slots
                    start(job)
    return result


def _shadow(head: TraceJob, free: int, running: Sequence[tuple[float, float, TraceJob]]) -> tuple[float, int]:
    """When the first job starts at the latest, and how many slots are left over then."""
    for _, at, job in sorted(running, key=lambda each: each[1]):
        free += job.slots
        if free >= head.slots:
            return at, free - head.slots
    raise AssertionError("the first job does not fit on the machine")


def held_by_owner(holding: Iterable[Job]) -> dict[str, int]:
    held: dict[str, int] = {}
    for job in holding:
        held[owner_of(job)] = held.get(owner_of(job), 0) + len(job.devices)
    return held
