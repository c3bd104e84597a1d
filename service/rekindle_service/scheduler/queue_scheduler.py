"""Jobs that are queued: those whose turn has come get their slots, and requests to cancel or hold take effect."""

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from rekindle.contract.states import JobIntent, JobState
from rekindle_service.config.home import Home
from rekindle_service.jobs.scheduler_health import Outlook, Prospect
from rekindle_service.jobs.submission_record import confirm_runs
from rekindle_service.launch.registry import launcher_of
from rekindle_service.machine.health import DeviceHealth
from rekindle_service.machine.slots import Machine
from rekindle_service.run_readers.stored_snapshots import next_checkpoint_bytes
from rekindle_service.scheduler import waiting_reasons
from rekindle_service.scheduler.allocation import Allocation, AllocationState, QueuePosition, allocate
from rekindle_service.scheduler.displacer import DEFAULT_RULES, DisplacementRules, Displacer
from rekindle_service.scheduler.durations import DISPLACED_SECONDS, Forecast
from rekindle_service.scheduler.fair_share import UsageMeter, fair_order
from rekindle_service.scheduler.limited_runner import LimitedRunner
from rekindle_service.scheduler.queue_state import QueueState
from rekindle_service.scheduler.running_jobs import JobEnd
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

_DAY = 86400.0
_REFRESH = 20.0  # seconds after which estimates and shares are computed again although nothing has changed
_SHOW_INTERVAL = 2.0  # seconds between two writes of what many jobs show
_FEW = 20  # rows that are written at once
_CANCELLED = ("Cancelled while it was queued.", "cancelled while queued")  # message of the outcome, reason of the event
_AT_ONCE = 200  # jobs
_CONFIRM_SECONDS = 60.0  # more than a submission takes from its row to its answer


class SpaceGate:
    """Which jobs there is no space for now. ``state`` changes when that has to be decided again."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._awaited = 0  # bytes: the least that a job was refused for

    @property
    def state(self) -> str | None:
        return self._home.lack_of_space(self._awaited)

    def begin(self) -> None:
        """Before all jobs are asked for."""
        self._awaited = 0

    def lack(self, job: Job) -> str | None:
        """Why this job cannot start; None where there is space, or nothing is known of its checkpoints."""
        if job.attempt == 0 and job.spec.continue_from is None:
            return None
        needed = next_checkpoint_bytes(self._home.run_dir(job.id))
        lack = self._home.lack_of_space(needed) if needed else None
        if lack is not None:
            self._awaited = min(needed, self._awaited or needed)
        return lack


class QueuePlanner:
    """One thread calls it, but for ``plan_with``. ``fair_share_days``: half-life of what an owner has used."""

    def __init__(
        self,
        store: Store,
        machine: Machine,
        rules: DisplacementRules = DEFAULT_RULES,
        *,
        fair_share_days: float = 7.0,
        obstacles: Mapping[str, str | None] | None = None,
    ) -> None:
        self._machine, self._rules = machine, rules
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
            self.usage.count(self.state.holding, self._planned_at)
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
                allocation = self._allocate(unusable, lack_of_space, waiting_reasons.shown_lack)
            return allocation, self.state.holding

    def outlook(self, unusable: Mapping[str, str], lack_of_space: str | None) -> Outlook:
        """What the next ``plan`` would predict. Any thread may call it; no files are read. Raises StorageError."""
        with self._lock:
            self.state.refresh()
            forecast = self._forecast()
            left = {job.id: forecast.time_left(job) for job in self.state.holding}
            return Outlook(left, self._allocate(unusable, lack_of_space, waiting_reasons.shown_lack).predictions)

    def _forecast(self) -> Forecast:
        forecast = Forecast(self.state.durations, time.time(), self.state.time_left)
        forecast.note_running(self.state.holding)
        return forecast

    def _allocate(
        self,
        unusable: Mapping[str, str],
        lack_of_space: str | None,
        own_lack_of_space: Callable[[Job], str | None],
    ) -> Allocation:
        holding, forecast = self.state.holding, self._forecast()
        situation = AllocationState(
            self._machine,
            holding,
            self.state.job_state,
            self.state.job_label,
            remaining=forecast.remaining,
            max_seconds=forecast.max_seconds,
            expected=forecast.expected,
            shown_remaining=forecast.time_left,
            shown_expected=forecast.length,
            quotas=self._rules.quotas,
            preemption=self._rules.preemption,
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


class QueueScheduler:
    """Plans the queue again when something has changed that matters to it.

    One thread calls it, but for ``prospect``.
    """

    def __init__(
        self,
        store: Store,
        home: Home,
        runner: LimitedRunner,
        planner: QueuePlanner,
        displacer: Displacer,
        device_health: DeviceHealth,
        *,
        wake: Callable[[], None],
    ) -> None:
        """``wake``: reconcile again at once, since a job has got its slots and no keeper yet, or more is to be done."""
        self._store, self._home, self._runner = store, home, runner
        self._planner, self._displacer, self._device_health = planner, displacer, device_health
        self._wake = wake
        self._end = JobEnd(store, home)
        self._space = SpaceGate(home)
        self._scheduled: tuple[int, str | None, int] = (-1, None, -1)  # see ``_revision``, when the queue was planned

    def schedule(self) -> None:
        """Raises StorageError."""
        revision = self._revision()
        if revision == self._scheduled and not (self._planner.is_due() or self._displacer.is_due()):
            return
        self._space.begin()
        complete = self._apply_queued_intents()
        unusable, lack = self._device_health.unusable(), self._space.state
        allocation = self._planner.plan(unusable, lack, self._lack_of_space)
        self._planner.show(allocation)
        for job, devices in allocation.starts:
            self._start(job, devices)
        self._displacer.act(allocation.waiting_head)
        state = self._space.state  # what it waits for has changed
        self._scheduled = (revision[0] if complete else -1, state, revision[2])

    def prospect(self, job: Job) -> Prospect:
        """When ``job``, which is stored nowhere, would start. Any thread may call it. Raises StorageError."""
        allocation, holding = self._planner.plan_with(job, self._device_health.unusable(), self._home.lack_of_space())
        for started, devices in allocation.starts:
            if started is job:
                launcher = launcher_of(job.spec)
                waiting_for = None if launcher.takes_slots else f"{launcher.title}, which decides when it starts"
                return Prospect(devices, 0.0 if launcher.takes_slots else None, waiting_for=waiting_for)
        place = allocation.queue_positions.get(job.id, QueuePosition(None, None))
        taken = [name for _, names in allocation.starts for name in names]
        made, ready_in = self._displacer.would_displace(job, holding, allocation.waiting_head, taken)
        starts = [] if place.starts_in is None else [place.starts_in]
        starts += [ready_in + DISPLACED_SECONDS] if made else []
        displaced = [(each.job, each.kind) for each in made]
        return Prospect([], min(starts, default=None), place.position, place.waiting_for, displaced)

    def outlook(self) -> Outlook:
        """When running jobs leave their slots and waiting ones get them. Any thread may call it."""
        return self._planner.outlook(self._device_health.unusable(), self._home.lack_of_space())

    def close(self) -> None:
        """Raises StorageError."""
        self._planner.close()

    def _revision(self) -> tuple[int, str | None, int]:
        """Changes with everything that may let a queued job start, or give it another reason to wait."""
        return self._store.queue_revision, self._space.state, self._device_health.revision

    def _lack_of_space(self, job: Job) -> str | None:
        """Why this job cannot start: see ``SpaceGate.lack``, which reads its files."""
        found: list[str | None] = []
        self._runner.run(job.id, lambda: found.append(self._space.lack(job)))
        return found[0] if found else "unknown: the files of the job do not respond or cannot be read"

    def _apply_queued_intents(self) -> bool:
        """A queued job has no keeper to carry out a request: it takes effect at once. False: not for all jobs."""
        queue = self._store.queue
        for job in queue.with_intent(JobIntent.DRAIN, _AT_ONCE):
            self._store.set_intent(job.id, JobIntent.HOLD, expected={JobIntent.DRAIN})
        old, new = (queue.with_intent(JobIntent.CANCEL, _AT_ONCE, new=each) for each in (False, True))
        for job in old:
            self._runner.run(job.id, partial(self._end.cancel, job, *_CANCELLED))
        self._end.cancel_new(new, *_CANCELLED)
        if len(new) == _AT_ONCE:  # there may be thousands: running jobs come in between
            self._wake()
        return not (old or new) or not queue.with_intent(JobIntent.CANCEL, 1)

    def _start(self, job: Job, devices: list[str]) -> None:
        """Assign the slots; the next iteration finds a job without a keeper and launches it.

        One whose submission is about to be confirmed (``jobs.submission_record``) is left for then; one that was
        committed although the database said otherwise is confirmed after a while.
        """
        if self._home.new_run(job.id).root.exists():
            if time.time() - job.created_at < _CONFIRM_SECONDS:
                return
            confirm_runs(self._home, [job.id])
        launcher = launcher_of(job.spec)
        reason = f"allocated {', '.join(devices)}" if launcher.takes_slots else f"handed to {launcher.title}"
        now = time.time()
        times = {"started_at": job.started_at or now, "allocated_at": now}
        columns = {"devices": devices, "run": job.run + 1, "slurm": None, **times}
        self._store.transition(job.id, JobState.STARTING, expected={JobState.QUEUED}, reason=reason, **columns)
        self._wake()
