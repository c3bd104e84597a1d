"""The control loop: starts queued jobs, keeps running ones supervised, and completes those that have ended."""

import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial

import structlog

from rekindle.contract.files import read_json, write_json
from rekindle.contract.job import HEALTHY_SECONDS, RunIntent
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.control import ControlMessage, MessageType, notify
from rekindle.contract.safe_open import read_text_from, regular_size
from rekindle.contract.states import HOLDING_SLOTS, JobIntent, JobState
from rekindle_service.config.home import Home
from rekindle_service.machine.devices import Machine
from rekindle_service.scheduler.allocation import allocate
from rekindle_service.scheduler.keeper_pool import KeeperPool, Launcher
from rekindle_service.scheduler.recovery import collect_bundles, free_memory, recover_on_startup, remove_run
from rekindle_service.scheduler.run_sync import RunSync
from rekindle_service.scheduler.space import SpaceGate
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

_log = structlog.get_logger(__name__)

_RECONCILE_INTERVAL = 0.2  # seconds, unless something wakes the loop before
_BUNDLE_GC_INTERVAL = 3600  # seconds
_EVIDENCE_BYTES = 4000  # of the end of a keeper's log
_PROGRESS_INTERVAL = 0.5  # seconds between two reads of the ranks' status


class Reconciler:
    """One thread. All its state is in rows and run directories: a new one continues where the last one died.

    An error with one job (an unreadable directory, invalid files) is logged and shown on that job; the others
    continue.
    """

    def __init__(
        self, store: Store, home: Home, machine: Machine, launch: Launcher, healthy_seconds: float = HEALTHY_SECONDS
    ) -> None:
        self._store = store
        self._home = home
        self._machine = machine
        self._sync = RunSync(store, home)
        self._launch = launch
        self._healthy_seconds = healthy_seconds
        self._keepers = KeeperPool(home, self._launch_keeper)
        self._woken = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)
        self._space = SpaceGate(home)
        self._scheduled: tuple[int, str | None] = (-1, None)  # the store's queue_revision and the gate's state, then
        self._progress_at = 0.0  # time.monotonic() of the last read of the ranks' status
        self._bundle_gc_at = float("-inf")  # time.monotonic()
        self._last_tombstone = 0  # version
        self._pending_deletes: set[str] = set()  # deleted jobs whose directory still exists
        self._last_errors: dict[str, str] = {}  # by what was reconciled

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Recover what the last server left, then start the loop. Call it before the first request is accepted."""
        recover_on_startup(self._home, self._store)
        self._thread.start()

    def wake(self) -> None:
        """Reconcile now instead of after the interval."""
        self._woken.set()

    def close(self) -> None:
        """Stop after the current iteration. Keepers and their jobs continue."""
        self._stopping = True
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._keepers.detach()

    def _run(self) -> None:
        while not self._stopping:
            self._woken.clear()
            self.reconcile()
            self._woken.wait(_RECONCILE_INTERVAL)

    def reconcile(self) -> None:
        """One iteration. Finished runs come first, so that their slots are allocated in the same one."""
        self._run_isolated("running jobs", self._reconcile_running)
        self._run_isolated("the queue", self._schedule)
        self._run_isolated("deleted jobs", self._purge_deleted)
        self._run_isolated("bundles", self._collect_bundles)

    # --- jobs that hold slots

    def _reconcile_running(self) -> None:
        jobs = self._store.jobs_in(HOLDING_SLOTS)
        self._keepers.reap({job.id for job in jobs})
        read_progress = time.monotonic() - self._progress_at >= _PROGRESS_INTERVAL
        if read_progress:
            self._progress_at = time.monotonic()
        for job in jobs:
            self._run_isolated(job.id, partial(self._reconcile_job, job, read_progress))

    def _reconcile_job(self, job: Job, read_progress: bool) -> None:
        """Read what happened, propagate the intent, and make sure that there is a keeper."""
        alive = self._keepers.alive(job)  # checked before reading: a keeper writes its last record, then ends
        job = self._sync.read_journal(job)
        if job.state not in HOLDING_SLOTS:
            return
        if alive:
            self._propagate_intent(job)
        else:
            self._relaunch_keeper(job)
        if read_progress and job.state is JobState.RUNNING:
            self._sync.read_progress(job)

    def _propagate_intent(self, job: Job) -> None:
        """To the keeper of this run only: one of an earlier run that is about to end must not act on it."""
        stored = read_json(self._home.run_dir(job.id).intent)
        if isinstance(stored, dict) and stored.get("run") == job.run:
            self._write_intent(job, stored)

    def _write_intent(self, job: Job, stored: object) -> None:
        """A pending request to stop is sent again every time: a server may have died between writing and notifying."""
        run_dir = self._home.run_dir(job.id)
        requested = JobIntent.DRAIN if job.intent is JobIntent.HOLD else job.intent  # held after it had left the queue
        intent = RunIntent(
            requested, job.run, job.devices, job.max_failures, _chosen_snapshot(job), self._healthy_seconds
        )
        changed = stored != intent.to_json()
        if changed:
            write_json(run_dir.intent, intent.to_json())
        if changed or intent.intent is not JobIntent.RUN:
            notify(run_dir, ControlMessage(MessageType.INTENT))

    def _relaunch_keeper(self, job: Job) -> None:
        """Launch the keeper of a job that has none: the first, or the next after a lost one."""
        if self._keepers.crash_looping(job):
            self._fail_job(job)
            return
        if job.state is JobState.RUNNING:
            reason = "the keeper was lost; relaunching it"
            job = self._store.transition(job.id, JobState.RECOVERING, expected={job.state}, reason=reason) or job
        self._keepers.launch(job)

    def _launch_keeper(self, job: Job) -> "subprocess.Popen[bytes]":
        """The intent first: it is the first thing that a keeper reads."""
        self._write_intent(job, read_json(self._home.run_dir(job.id).intent))
        return self._launch(job)

    def _fail_job(self, job: Job) -> None:
        run_dir = self._home.run_dir(job.id)
        tail = read_text_from(run_dir.keeper_log, max(0, regular_size(run_dir.keeper_log) - _EVIDENCE_BYTES))
        message = f"The keeper could not start or ended at once, repeatedly; see {run_dir.keeper_log}"
        outcome = Outcome(OutcomeClass.LAUNCH_ERROR, message, retryable=False, evidence={"keeper_log": tail})
        self._end(job, JobState.FAILED, outcome, f"{OutcomeClass.LAUNCH_ERROR}: {message}")

    def _end(self, job: Job, to: JobState, outcome: Outcome, reason: str) -> None:
        """End a job that has no keeper to end it, unless its state has changed."""
        end = {"outcome": outcome.to_json(), "devices": [], "ended_at": time.time()}
        if self._store.transition(job.id, to, expected={job.state}, reason=reason, **end) is not None:
            free_memory(self._home.run_dir(job.id))

    # --- the queue

    def _schedule(self) -> None:
        revision = self._store.queue_revision
        if (revision, self._space.state) == self._scheduled:
            return
        self._space.begin()
        self._apply_queued_intents()
        taken = [name for job in self._store.jobs_in(HOLDING_SLOTS) for name in job.devices]
        queue, job_state = self._store.queue(), cache(self._store.job_state)
        allocation = allocate(queue, self._machine, taken, job_state, self._space.state, self._space.lack)
        self._store.update_queue(allocation.queue_positions)
        for job, devices in allocation.starts:
            self._start(job, devices)
        self._scheduled = revision, self._space.state

    def _apply_queued_intents(self) -> None:
        """A queued job has no keeper to carry out a request: it takes effect at once."""
        for job in self._store.jobs_in({JobState.QUEUED}, {JobIntent.DRAIN}):
            self._store.set_intent(job.id, JobIntent.HOLD, expected={JobIntent.DRAIN})
        for job in self._store.jobs_in({JobState.QUEUED}, {JobIntent.CANCEL}):
            outcome = Outcome(OutcomeClass.CANCELLED, "Cancelled while it was queued.", retryable=False)
            self._end(job, JobState.CANCELLED, outcome, "cancelled while queued")

    def _start(self, job: Job, devices: list[str]) -> None:
        """Assign the slots; the next iteration finds a job without a keeper and launches it."""
        reason = f"allocated {', '.join(devices)}"
        columns = {"devices": devices, "run": job.run + 1, "started_at": job.started_at or time.time()}
        self._store.transition(job.id, JobState.STARTING, expected={JobState.QUEUED}, reason=reason, **columns)
        self.wake()

    # --- deleted jobs

    def _purge_deleted(self) -> None:
        for tombstone in self._store.tombstones(self._last_tombstone):
            self._pending_deletes.add(tombstone.job_id)
            self._last_tombstone = tombstone.id
        self._pending_deletes = {job_id for job_id in self._pending_deletes if not remove_run(self._home, job_id)}

    def _collect_bundles(self) -> None:
        if time.monotonic() - self._bundle_gc_at >= _BUNDLE_GC_INTERVAL:
            self._bundle_gc_at = time.monotonic()
            collect_bundles(self._home, self._store)

    # --- errors

    def _run_isolated(self, subject: str, action: Callable[[], None]) -> None:
        """Run ``action``; an error is logged and shown once until it changes; the loop continues."""
        try:
            action()
            self._last_errors.pop(subject, None)
        except Exception as error:  # noqa: BLE001 - the loop must outlive any error of one job or one disk
            if self._last_errors.get(subject) != repr(error):
                self._last_errors[subject] = repr(error)
                _log.error("Reconciling failed", subject=subject, exc_info=error)
                notice = f"The server cannot process this job: {error}".encode(errors="replace").decode()
                with suppress(Exception):  # it is logged already, and often the database itself has failed
                    self._store.update_progress(subject, notice=notice)


def _chosen_snapshot(job: Job) -> int | None:
    """The step that this run begins from; a choice for an earlier run was applied then."""
    return job.rewind["step"] if job.rewind.get("run") == job.run else None
