"""``QueuePlanner``: what starts now, in which order, and what the others show while they wait."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rekindle.contract.states import JobIntent
from rekindle_service.config.settings import Preemption
from rekindle_service.jobs.quotas import Quotas, owner_of, slots_of, slots_wanted
from rekindle_service.machine.slots import Machine
from rekindle_service.scheduler import reasons
from rekindle_service.scheduler.allocation import Allocation, Situation, allocate
from rekindle_service.scheduler.durations import Durations, expected, max_seconds, remaining
from rekindle_service.scheduler.order import ASSUMED_SECONDS, QueueIndex
from rekindle_service.scheduler.queue_state import QueueState
from rekindle_service.scheduler.usage import UsageMeter
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

_DAY = 86400.0
_REFRESH = 20.0  # seconds after which estimates and shares are computed again although nothing has changed
_SHOW_INTERVAL = 2.0  # seconds between two writes of what many jobs show
_FEW = 20  # rows that are written at once


@dataclass(frozen=True, slots=True)
class Forecast:
    """How long jobs run, in seconds; None where nobody knows. ``now``: seconds since the epoch."""

    durations: Durations
    now: float

    def remaining(self, job: Job) -> float | None:
        """Until a job that holds slots probably leaves them."""
        return remaining(job, self.durations.of(job), self.now)

    def max_seconds(self, job: Job) -> float | None:
        return max_seconds(job, self.durations.of(job))

    def expected(self, job: Job) -> float | None:
        return expected(job, self.durations.of(job))


def fair_order(
    queued: QueueIndex, holding: Iterable[Job], used: Mapping[str, float], forecast: Forecast
) -> Iterator[Job]:
    """The queue, next job first; see ``order``. ``used``: slot-seconds by owner until now."""
    committed = dict(used)
    for job in holding:
        left = forecast.remaining(job)
        seconds = slots_of(job) * (ASSUMED_SECONDS if left is None else left)
        committed[owner_of(job)] = committed.get(owner_of(job), 0.0) + seconds

    def cost(job: Job) -> float:
        seconds = forecast.expected(job)
        return slots_wanted(job.spec) * (ASSUMED_SECONDS if seconds is None else seconds)

    return queued.ordered(committed, cost, _counts)


class QueuePlanner:
    """One thread calls it, but for ``plan_with``. ``fair_share_days``: half-life of what an owner has used."""

    def __init__(
        self,
        store: Store,
        machine: Machine,
        *,
        quotas: Quotas | None = None,
        preemption: Preemption = "own",
        fair_share_days: float = 7.0,
        obstacles: Mapping[str, str | None] | None = None,
    ) -> None:
        self._machine, self._quotas, self._preemption = machine, quotas or Quotas(), preemption
        self._obstacles = obstacles or {}
        self.state = QueueState(store)
        self.usage = UsageMeter(store.queue, fair_share_days * _DAY)
        self._planned_at = self._shown_at = float("-inf")  # time.monotonic()
        self._unwritten = False  # some jobs do not show yet what they should
        self._lock = threading.Lock()  # of ``state``

    def is_due(self) -> bool:
        """Whether to plan again although nothing has changed."""
        now = time.monotonic()
        if self._unwritten and now - self._shown_at >= _SHOW_INTERVAL:
            return True
        waiting = now - self._planned_at >= _REFRESH and len(self.state.queued) > 0
        return waiting or self.usage.is_due(now)

    def plan(
        self,
        unusable: Mapping[str, str],
        lack_of_space: str | None,
        own_lack_of_space: Callable[[Job], str | None],
    ) -> Allocation:
        """What to do now. Raises StorageError."""
        with self._lock:
            self._planned_at = time.monotonic()
            self.state.refresh()
            self.usage.count(self.state.holding.values(), self._planned_at)
            return self._allocate(unusable, lack_of_space, own_lack_of_space)

    def plan_with(
        self, job: Job, unusable: Mapping[str, str], lack_of_space: str | None
    ) -> tuple[Allocation, list[Job]]:
        """What ``plan`` would return if ``job`` were queued, and the jobs that hold slots. Any thread may call it.

        No files are read: another job without enough disk space counts as such if it shows that. Raises StorageError.
        """
        with self._lock:
            self.state.refresh()
            with self.state.including(job):
                allocation = self._allocate(unusable, lack_of_space, reasons.shown_lack)
            return allocation, list(self.state.holding.values())

    def _allocate(
        self,
        unusable: Mapping[str, str],
        lack_of_space: str | None,
        own_lack_of_space: Callable[[Job], str | None],
    ) -> Allocation:
        holding = list(self.state.holding.values())
        forecast = Forecast(self.state.durations, time.time())
        situation = Situation(
            self._machine,
            holding,
            self.state.job_state,
            self.state.job_label,
            remaining=forecast.remaining,
            max_seconds=forecast.max_seconds,
            expected=forecast.expected,
            quotas=self._quotas,
            preemption=self._preemption,
            unusable=unusable,
            lack_of_space=lack_of_space,
            own_lack_of_space=own_lack_of_space,
            kinds=self.state.kinds,
            obstacles=self._obstacles,
        )
        return allocate(fair_order(self.state.queued, holding, self.usage.slot_seconds, forecast), situation)

    def show(self, allocation: Allocation) -> None:
        """Write what queued jobs wait for: of a few at once, of many not all the time. Raises StorageError."""
        starts = {job.id for job, _ in allocation.starts}
        with self._lock:
            changed = self.state.changed_places(allocation.queue_positions, time.time())
            changed = {job_id: shown for job_id, shown in changed.items() if job_id not in starts}
            now = time.monotonic()
            self._unwritten = len(changed) > _FEW and now - self._shown_at < _SHOW_INTERVAL
            if changed and not self._unwritten:
                self._shown_at = now
                self.state.show(changed)

    def close(self) -> None:
        """Keep what was counted. Raises StorageError."""
        self.usage.close()


def _counts(job: Job) -> bool:
    """Held jobs do not run soon."""
    return job.intent is JobIntent.RUN
