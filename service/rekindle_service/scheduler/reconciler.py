"""The control loop: starts queued jobs, keeps running ones supervised, and removes the files of deleted ones."""

from collections.abc import Callable
from contextlib import suppress

import structlog

from rekindle.contract.job import HEALTHY_SECONDS, HOST_TIMEOUT
from rekindle.contract.states import TERMINAL
from rekindle_service.config.home import Home, is_job_id
from rekindle_service.config.logging_config import fields_of
from rekindle_service.jobs.scheduler_health import SchedulerHealth
from rekindle_service.launch.registry import Launchers
from rekindle_service.machine.health import DeviceHealth
from rekindle_service.machine.slots import Machine
from rekindle_service.periodic_thread import PeriodicThread
from rekindle_service.retention.deletions import Deletions
from rekindle_service.scheduler.displacer import DEFAULT_RULES, DisplacementRules, Displacer
from rekindle_service.scheduler.limited_runner import LimitedRunner
from rekindle_service.scheduler.queue_scheduler import QueuePlanner, QueueScheduler
from rekindle_service.scheduler.recovery import recover_on_startup
from rekindle_service.scheduler.running_jobs import IntentWriter, RunningJobs
from rekindle_service.store import StorageError, Store

_log = structlog.get_logger(__name__)

_RECONCILE_INTERVAL = 0.2  # seconds, unless something wakes the loop before
_JOB_SECONDS = 10.0  # for which the other jobs wait for the files of one

_PROBLEM = "The server cannot process this job: "


class Reconciler:
    """One loop. All its state is in rows and run directories: a new one continues where the last one died.

    An error with one job (an unreadable directory, invalid files) is logged and shown on that job, and so are files
    that do not answer, which hold up the others for ``job_seconds`` at most; the others continue.
    """

    def __init__(
        self,
        store: Store,
        home: Home,
        machine: Machine,
        launchers: Launchers,
        healthy_seconds: float = HEALTHY_SECONDS,
        job_seconds: float = _JOB_SECONDS,
        log_bytes: int | None = None,
        host_timeout: float = HOST_TIMEOUT,
        device_health: DeviceHealth | None = None,
        displacement: DisplacementRules = DEFAULT_RULES,
        fair_share_days: float = 7.0,
    ) -> None:
        """The ``on_change`` of ``device_health`` is to be ``wake``."""
        self.deletions = Deletions(home)
        self._store = store
        self._home = home
        self._thread = PeriodicThread("reconciler", self.reconcile, _RECONCILE_INTERVAL, "Reconciling failed")
        self._runner = LimitedRunner(job_seconds, self._show_problem, passing=(StorageError,))
        intents = IntentWriter(home, healthy_seconds, log_bytes, host_timeout, machine)
        self._running = RunningJobs(store, home, self._runner, intents, launchers, on_end=self.wake)
        health = device_health or DeviceHealth()
        self._queue = QueueScheduler(
            store,
            home,
            self._runner,
            QueuePlanner(
                store,
                machine,
                displacement,
                fair_share_days=fair_share_days,
                obstacles={each.name: each.obstacle() for each in launchers if not each.takes_slots},
            ),
            Displacer(store, machine, displacement, health),
            health,
            wake=self.wake,
        )
        self.prospect, self.outlook = self._queue.prospect, self._queue.outlook
        self._last_tombstone = 0  # version
        self._purged = -1  # revision of the queue up to which no run directory of a deleted job is left
        self._duty_errors: dict[str, str] = {}

    def health(self) -> SchedulerHealth:
        """Any thread may call it."""
        stuck = {subject: seconds for subject, seconds in self._runner.stuck().items() if is_job_id(subject)}
        failing = self._runner.failing() + len(self._duty_errors)
        return SchedulerHealth(self._thread.is_alive, self._thread.age, stuck, failing)

    def start(self) -> None:
        """Recover what the last server left, then start the loop. Call it before the first request is accepted."""
        self.recover()
        self.deletions.start()
        self._thread.start()

    def recover(self) -> None:
        """Complete what the last server left. Deletions follow, since unconfirmed submissions are among them."""
        recover_on_startup(self._home, self._store)
        self.deletions.adopt()

    def wake(self) -> None:
        """Reconcile now instead of after the interval."""
        self._thread.wake()

    def close(self) -> None:
        """Stop after the current iteration. Keepers and their jobs continue."""
        self._thread.close()
        self._runner.close()
        with suppress(StorageError):
            self._queue.close()
        self.deletions.close()
        self._running.detach()

    def reconcile(self) -> None:
        """One iteration. Finished runs come first, so that their slots are allocated in the same one."""
        self._run_duty("running jobs", self._running.reconcile)
        self._run_duty("the queue", self._queue.schedule)
        if self._store.queue_revision != self._purged or self._runner.stuck():
            self._runner.run("deleted jobs", self._purge_deleted)

    # --- deleted jobs

    def _purge_deleted(self) -> None:
        revision = self._store.queue_revision
        if revision == self._purged:
            return
        while tombstones := self._store.feed.tombstones(self._last_tombstone):
            for tombstone in tombstones:
                if self._home.run_dir(tombstone.job_id).root.exists():
                    self.deletions.remove_run(tombstone.job_id)
                self._last_tombstone = tombstone.id
        self._purged = revision

    # --- errors

    def _run_duty(self, duty: str, action: Callable[[], None]) -> None:
        """Run ``action``, which leaves the files of jobs to the runner; an error is logged once until it changes."""
        try:
            action()
            self._duty_errors.pop(duty, None)
        except Exception as error:  # noqa: BLE001 - the loop must outlive any error of the database or the disk
            if self._duty_errors.get(duty) != repr(error):
                self._duty_errors[duty] = repr(error)
                _log.error("Reconciling failed", subject=duty, **fields_of(error))

    def _show_problem(self, job_id: str, problem: str | None) -> None:
        """On the job; None where it is over, which leaves that of an ended job. A duty, not a job, has no row."""
        with suppress(Exception):  # it is logged already, and often the database itself has failed
            job = self._store.job(job_id)
            if problem is not None:
                notice = (_PROBLEM + problem).encode(errors="replace").decode()
                self._store.update_progress(job_id, notice=notice)
            elif job is not None and job.state not in TERMINAL and (job.notice or "").startswith(_PROBLEM):
                self._store.update_progress(job_id, notice=None)
