"""The control loop: starts queued jobs, keeps running ones supervised, and completes those that have ended."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import structlog

from rekindle.contract.job import HEALTHY_SECONDS, HOST_TIMEOUT
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import HOLDING_SLOTS, TERMINAL, JobIntent, JobState
from rekindle_service.config.home import Home, is_job_id
from rekindle_service.config.logging_config import fields_of
from rekindle_service.jobs.quotas import Quotas
from rekindle_service.jobs.scheduler_health import SchedulerHealth
from rekindle_service.jobs.submission_record import confirm_runs
from rekindle_service.launchers.keeper_pool import KeeperPool, KeeperStarter
from rekindle_service.launchers.launcher import Launcher, LauncherReport
from rekindle_service.launchers.spare_process import KeeperProcess
from rekindle_service.machine.devices import Machine
from rekindle_service.machine.health import DeviceHealth
from rekindle_service.retention.deletions import Deletions, free_memory
from rekindle_service.scheduler.displacer import DEFAULT_RULES, DisplacementRules, Displacer
from rekindle_service.scheduler.intents import IntentWriter
from rekindle_service.scheduler.isolation import IsolatedRunner
from rekindle_service.scheduler.planner import QueuePlanner
from rekindle_service.scheduler.reasons import NO_CLUSTER
from rekindle_service.scheduler.recovery import recover_on_startup
from rekindle_service.scheduler.run_sync import RunSync
from rekindle_service.scheduler.space import SpaceGate
from rekindle_service.store import StorageError, Store
from rekindle_service.store.tables import Job

_log = structlog.get_logger(__name__)

_RECONCILE_INTERVAL = 0.2  # seconds, unless something wakes the loop before
_CONFIRM_SECONDS = 60.0  # more than a submission takes from its row to its answer
_PROGRESS_INTERVAL = 0.5  # seconds between two reads of the ranks' status
_JOB_SECONDS = 10.0  # for which the other jobs wait for the files of one
ClusterFactory = Callable[[Callable[..., Job | None], Callable[[Job], None]], Launcher]
"""Makes the launcher of a cluster from two functions: one sets columns of a row, one writes the intent."""

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
        launch: KeeperStarter,
        healthy_seconds: float = HEALTHY_SECONDS,
        job_seconds: float = _JOB_SECONDS,
        log_bytes: int | None = None,
        host_timeout: float = HOST_TIMEOUT,
        cluster: ClusterFactory | None = None,
        device_health: DeviceHealth | None = None,
        displacement: DisplacementRules = DEFAULT_RULES,
        quotas: Quotas | None = None,
        fair_share_days: float = 7.0,
    ) -> None:
        self.deletions = Deletions(home)
        self._store = store
        self._home = home
        self._machine = machine
        self._device_health = device_health or DeviceHealth()  # its on_change is to be ``wake``
        self._displacer = Displacer(store, machine, displacement, self._device_health)
        self._sync = RunSync(store, home)
        self._launch = launch
        self._intents = IntentWriter(home, healthy_seconds, log_bytes, host_timeout, machine.slots)
        self._local: Launcher = KeeperPool(home, self._launch_keeper, on_end=self.wake)
        self._cluster = None if cluster is None else cluster(self._record_launch, self._intents.write)
        self._woken = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)
        self._space = SpaceGate(home)
        self._planner = QueuePlanner(store, machine, quotas=quotas, fair_share_days=fair_share_days)
        self._scheduled: tuple[int, str | None, int] = (-1, None, -1)  # see ``_revision``, when the queue was planned
        self._progress_at = 0.0  # time.monotonic() of the last read of the ranks' status
        self._last_tombstone = 0  # version
        self._purged = -1  # revision of the queue up to which no run directory of a deleted job is left
        self._duty_errors: dict[str, str] = {}
        self._runner = IsolatedRunner(job_seconds, self._show_problem, passing=(StorageError,))
        self._iterated_at = time.monotonic()  # when the latest iteration ended

    def health(self) -> SchedulerHealth:
        """Any thread may call it."""
        stuck = {subject: seconds for subject, seconds in self._runner.stuck().items() if is_job_id(subject)}
        age = time.monotonic() - self._iterated_at
        return SchedulerHealth(self._thread.is_alive(), age, stuck, self._runner.failing())

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
        self._woken.set()

    def close(self) -> None:
        """Stop after the current iteration. Keepers and their jobs continue."""
        self._stopping = True
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._runner.close()
        with suppress(StorageError):
            self._planner.close()
        self.deletions.close()
        for launcher in self._launchers():
            launcher.detach()

    def _run(self) -> None:
        while not self._stopping:
            self._woken.clear()
            self.reconcile()
            self._woken.wait(_RECONCILE_INTERVAL)

    def reconcile(self) -> None:
        """One iteration. Finished runs come first, so that their slots are allocated in the same one."""
        self._run_duty("running jobs", self._reconcile_running)
        self._run_duty("the queue", self._schedule)
        if self._store.queue_revision != self._purged or self._runner.stuck():
            self._runner.run("deleted jobs", self._purge_deleted)
        self._iterated_at = time.monotonic()

    # --- jobs that hold slots

    def _reconcile_running(self) -> None:
        jobs = self._store.jobs_in(HOLDING_SLOTS)
        holding = {job.id for job in jobs}
        for launcher in self._launchers():
            launcher.observe([job for job in jobs if self._launcher_of(job) is launcher])
        self._runner.forget(self._is_over)
        self._intents.forget(holding)
        read_progress = time.monotonic() - self._progress_at >= _PROGRESS_INTERVAL
        if read_progress:
            self._progress_at = time.monotonic()
        for job in jobs:
            self._runner.run(job.id, partial(self._reconcile_job, job, read_progress))

    def _is_over(self, subject: str) -> bool:
        return is_job_id(subject) and self._store.job_state(subject) not in HOLDING_SLOTS | {JobState.QUEUED}

    def _launchers(self) -> list[Launcher]:
        return [self._local] if self._cluster is None else [self._local, self._cluster]

    def _launcher_of(self, job: Job) -> Launcher | None:
        return self._cluster if job.spec.is_cluster else self._local

    def _reconcile_job(self, job: Job, read_progress: bool) -> None:
        """Read what happened, propagate the intent, and make sure that there is a keeper."""
        launcher = self._launcher_of(job)
        alive = launcher and launcher.alive(job)  # checked before reading: a keeper writes its last record, then ends
        job = self._sync.read_journal(job)
        if job.state not in HOLDING_SLOTS:
            return
        if launcher is None:
            self._store.update_progress(job.id, waiting_for=NO_CLUSTER)
            return
        report = launcher.report(job)
        job = self._show_report(job, report)
        if alive:
            self._intents.propagate(job)
            if job.spec.is_cluster and job.intent is not JobIntent.RUN and report.waiting_for is not None:
                launcher.stop(job)
        elif alive is not None:
            self._replace_keeper(job, launcher, report)
        if read_progress and job.state is JobState.RUNNING:
            self._sync.read_progress(job)

    def _show_report(self, job: Job, report: LauncherReport) -> Job:
        """What the launcher knows, on the row."""
        if report.queued_again and job.state is JobState.RUNNING:
            reason = report.waiting_for or "its keeper does not run now"
            job = self._store.transition(job.id, JobState.RECOVERING, expected={job.state}, reason=reason) or job
        shown = {"waiting_for": report.waiting_for, "slurm": report.columns} if job.spec.is_cluster else {}
        if all(getattr(job, name) == value for name, value in shown.items()):
            return job
        return self._store.update_progress(job.id, **shown) or job

    def _replace_keeper(self, job: Job, launcher: Launcher, report: LauncherReport) -> None:
        """On Slurm no keeper is started only to end the job."""
        if job.spec.is_cluster and job.intent is not JobIntent.RUN:
            launcher.stop(job)
            self._end_without_keeper(job)
        elif report.withdrawn is not None:
            self._requeue_held(job, report.withdrawn)
        else:
            self._relaunch_keeper(job, launcher)

    def _relaunch_keeper(self, job: Job, launcher: Launcher) -> None:
        """Launch the keeper of a job that has none: the first, or the next after a lost one."""
        if launcher.crash_looping(job):
            self._fail_job(job, *launcher.failure(job))
            return
        if job.state is JobState.RUNNING:
            reason = "the keeper was lost; relaunching it"
            if job.spec.is_cluster:
                reason = (job.slurm or {}).get("reason") or "the leading keeper was lost"
            job = self._store.transition(job.id, JobState.RECOVERING, expected={job.state}, reason=reason) or job
        launcher.launch(job)

    def _launch_keeper(self, job: Job) -> KeeperProcess:
        """The intent first: it is the first thing that a keeper reads."""
        self._intents.write(job)
        return self._launch(job)

    def _record_launch(self, job_id: str, **columns: Any) -> Job | None:
        return self._store.update_progress(job_id, **columns)

    def _fail_job(self, job: Job, message: str, log: str) -> None:
        outcome = Outcome(OutcomeClass.LAUNCH_ERROR, message, retryable=False, evidence={"keeper_log": log})
        self._end(job, JobState.FAILED, outcome, f"{OutcomeClass.LAUNCH_ERROR}: {message}")

    def _end_without_keeper(self, job: Job) -> None:
        """A job on Slurm that is to stop, and of which no keeper runs."""
        if job.intent is JobIntent.CANCEL:
            outcome = Outcome(OutcomeClass.CANCELLED, "Cancelled while no keeper of it ran.", retryable=False)
            self._end(job, JobState.CANCELLED, outcome, "cancelled while no keeper of it ran")
        else:
            self._requeue_held(job, None)

    def _requeue_held(self, job: Job, notice: str | None) -> None:
        columns: dict[str, Any] = {"intent": JobIntent.HOLD, "notice": notice, "devices": [], "next_try_at": None}
        reason = notice or "held while no keeper of it ran"
        self._store.transition(job.id, JobState.QUEUED, expected={job.state}, reason=reason, **columns)

    def _end(self, job: Job, to: JobState, outcome: Outcome, reason: str) -> None:
        """End a job that has no keeper to end it, unless its state has changed."""
        end = {"outcome": outcome.to_json(), "devices": [], "ended_at": time.time()}
        if self._store.transition(job.id, to, expected={job.state}, reason=reason, **end) is not None:
            free_memory(self._home.run_dir(job.id))

    # --- the queue

    def _revision(self) -> tuple[int, str | None, int]:
        """Changes with everything that may let a queued job start, or give it another reason to wait."""
        return self._store.queue_revision, self._space.state, self._device_health.revision

    def _schedule(self) -> None:
        revision = self._revision()
        if revision == self._scheduled and not (self._planner.is_due() or self._displacer.is_due()):
            return
        self._space.begin()
        complete = self._apply_queued_intents()
        unusable, lack = self._device_health.unusable(), self._space.state
        cluster = self._cluster is not None
        allocation = self._planner.plan(unusable, lack, self._lack_of_space, has_cluster=cluster)
        self._planner.show(allocation)
        for job, devices in allocation.starts:
            self._start(job, devices)
        self._displacer.act([job for job, _missing in allocation.waiting_head])
        state = self._space.state  # what it waits for has changed
        self._scheduled = (revision[0] if complete else -1, state, revision[2])

    def _lack_of_space(self, job: Job) -> str | None:
        """Why this job cannot start: see ``SpaceGate.lack``, which reads its files."""
        found: list[str | None] = []
        self._runner.run(job.id, lambda: found.append(self._space.lack(job)))
        return found[0] if found else "unknown: the files of the job do not respond or cannot be read"

    def _apply_queued_intents(self) -> bool:
        """A queued job has no keeper to carry out a request: it takes effect at once. False: not for all jobs."""
        for job in self._store.jobs_in({JobState.QUEUED}, {JobIntent.DRAIN}):
            self._store.set_intent(job.id, JobIntent.HOLD, expected={JobIntent.DRAIN})
        cancelled = self._store.jobs_in({JobState.QUEUED}, {JobIntent.CANCEL})
        for job in cancelled:
            outcome = Outcome(OutcomeClass.CANCELLED, "Cancelled while it was queued.", retryable=False)
            end = partial(self._end, job, JobState.CANCELLED, outcome, "cancelled while queued")
            self._runner.run(job.id, end)
        return not cancelled or not self._store.jobs_in({JobState.QUEUED}, {JobIntent.CANCEL})

    def _start(self, job: Job, devices: list[str]) -> None:
        """Assign the slots; the next iteration finds a job without a keeper and launches it.

        One whose submission is about to be confirmed (``jobs.submission_record``) is left for then; one that was
        committed although the database said otherwise is confirmed after a while.
        """
        if self._home.new_run(job.id).root.exists():
            if time.time() - job.created_at < _CONFIRM_SECONDS:
                return
            confirm_runs(self._home, [job.id])
        reason = "handed to Slurm" if job.spec.is_cluster else f"allocated {', '.join(devices)}"
        now = time.time()
        times = {"started_at": job.started_at or now, "allocated_at": now}
        columns = {"devices": devices, "run": job.run + 1, "slurm": None, **times}
        self._store.transition(job.id, JobState.STARTING, expected={JobState.QUEUED}, reason=reason, **columns)
        self.wake()

    # --- deleted jobs

    def _purge_deleted(self) -> None:
        revision = self._store.queue_revision
        if revision == self._purged:
            return
        while tombstones := self._store.tombstones(self._last_tombstone):
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
