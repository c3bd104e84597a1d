"""Jobs that are queued: those whose turn has come get their slots, and requests to cancel or hold take effect."""

import time
from collections.abc import Callable
from functools import partial

from rekindle.contract.states import JobIntent, JobState
from rekindle_service.config.home import Home
from rekindle_service.jobs.scheduler_health import Prospect
from rekindle_service.jobs.submission_record import confirm_runs
from rekindle_service.launch.registry import launcher_of
from rekindle_service.machine.health import DeviceHealth
from rekindle_service.scheduler.allocation import Place
from rekindle_service.scheduler.displacer import Displacer
from rekindle_service.scheduler.durations import DISPLACED_SECONDS
from rekindle_service.scheduler.isolation import IsolatedRunner
from rekindle_service.scheduler.job_end import JobEnd
from rekindle_service.scheduler.planner import QueuePlanner
from rekindle_service.scheduler.space import SpaceGate
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

_CANCELLED = ("Cancelled while it was queued.", "cancelled while queued")  # message of the outcome, reason of the event
_CANCELLED_AT_ONCE = 200  # jobs
_CONFIRM_SECONDS = 60.0  # more than a submission takes from its row to its answer


class QueueScheduler:
    """Plans the queue again when something has changed that matters to it.

    One thread calls it, but for ``prospect``.
    """

    def __init__(
        self,
        store: Store,
        home: Home,
        runner: IsolatedRunner,
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
        self._displacer.act([job for job, _missing in allocation.waiting_head])
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
        place = allocation.queue_positions.get(job.id, Place(None, None))
        taken = [name for _, names in allocation.starts for name in names]
        waiting = [each for each, _missing in allocation.waiting_head]
        made, ready_in = self._displacer.would_displace(job, holding, waiting, taken)
        starts = [] if place.starts_in is None else [place.starts_in]
        starts += [ready_in + DISPLACED_SECONDS] if made else []
        displaced = [(each.job, each.kind) for each in made]
        return Prospect([], min(starts, default=None), place.position, place.waiting_for, displaced)

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
        for job in self._store.jobs_in({JobState.QUEUED}, {JobIntent.DRAIN}):
            self._store.set_intent(job.id, JobIntent.HOLD, expected={JobIntent.DRAIN})
        cancelled = self._store.queue.cancelled
        old, new = (cancelled(new=each, limit=_CANCELLED_AT_ONCE) for each in (False, True))
        for job in old:
            self._runner.run(job.id, partial(self._end.cancel, job, *_CANCELLED))
        self._end.cancel_new(new, *_CANCELLED)
        if len(new) == _CANCELLED_AT_ONCE:  # there may be thousands: running jobs come in between
            self._wake()
        return not (old or new) or not any(cancelled(new=each, limit=1) for each in (True, False))

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
