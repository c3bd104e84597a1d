"""The loop that makes rows come true: it starts what is queued, tends what runs, and finishes what has ended."""

import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

import structlog

from rekindle.contract.files import read_json, write_json
from rekindle.contract.job import RunIntent
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.control import ControlMessage, MessageType, notify
from rekindle.contract.states import HOLDING_SLOTS, JobIntent, JobState
from rekindle_service.config.home import Home
from rekindle_service.machine.devices import Machine
from rekindle_service.scheduler.allocation import allocate
from rekindle_service.scheduler.keeper_pool import KeeperPool, Launcher
from rekindle_service.scheduler.recovery import free_memory, recover_on_startup, remove_run, sweep_bundles
from rekindle_service.scheduler.run_sync import RunSync
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

_log = structlog.get_logger(__name__)

_TICK = 0.2  # seconds between two rounds when nobody nudges
_SWEEP = 3600  # seconds between two looks for bundles that nobody needs
_PROGRESS = 0.5  # seconds between two looks at the ranks' status

_WANTS = {
    JobIntent.RUN: JobIntent.RUN,
    JobIntent.HOLD: JobIntent.DRAIN,  # held after it had left the queue
    JobIntent.DRAIN: JobIntent.DRAIN,
    JobIntent.CANCEL: JobIntent.CANCEL,
}


class Reconciler:
    """One thread. It keeps nothing that rows and run directories do not tell: a new one goes on where the last died.

    Trouble with one job (a folder that cannot be read, senseless files) is logged and noted on that job; the others
    go on.
    """

    def __init__(self, store: Store, home: Home, machine: Machine, launch: Launcher) -> None:
        self._store = store
        self._home = home
        self._machine = machine
        self._monitor = RunSync(store, home)
        self._launch = launch
        self._keepers = KeeperPool(home, self._launch_keeper)
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._planned = -1  # the store's queue_revision that the last plan was made for
        self._progress_at = 0.0  # time.monotonic() of the last look at the ranks' status
        self._swept_at = float("-inf")  # time.monotonic() of the last look for such bundles
        self._buried = 0  # version of the last tombstone seen
        self._doomed: set[str] = set()  # deleted jobs whose folder is still there
        self._troubles: dict[str, str] = {}

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Bring folders and rows into line, then begin. Before the first request is taken."""
        recover_on_startup(self._home, self._store)
        self._thread.start()

    def wake(self) -> None:
        """There is something to do: do not wait for the next round."""
        self._wake.set()

    def close(self) -> None:
        """End the loop after the current round. Keepers and their jobs go on."""
        self._stopping = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._keepers.release()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            self.round()
            self._wake.wait(_TICK)

    def round(self) -> None:
        """Everything once. Finished runs come first, so that their slots are given out in the same round."""
        self._guarded("running jobs", self._tend_all)
        self._guarded("the queue", self._serve_queue)
        self._guarded("deleted jobs", self._bury)
        self._guarded("bundles", self._sweep_bundles)

    # --- jobs that hold slots

    def _tend_all(self) -> None:
        jobs = self._store.jobs_in(HOLDING_SLOTS)
        self._keepers.reap({job.id for job in jobs})
        look = time.monotonic() - self._progress_at >= _PROGRESS
        if look:
            self._progress_at = time.monotonic()
        for job in jobs:
            self._guarded(job.id, partial(self._tend, job, look))

    def _tend(self, job: Job, look: bool) -> None:
        """Read what happened, pass on what is wanted, and see that there is a keeper."""
        alive = self._keepers.alive(job)  # asked before reading: a keeper writes its last record, then ends
        job = self._monitor.read_journal(job)
        if job.state not in HOLDING_SLOTS:
            return
        if alive:
            self._pass_on_intent(job)
        else:
            self._bring_back_keeper(job)
        if look and job.state is JobState.RUNNING:
            self._monitor.read_progress(job)

    def _pass_on_intent(self, job: Job) -> None:
        """Tell the keeper of this run; one of an earlier run, on its way out, must not take it for its own."""
        stored = read_json(self._home.run_dir(job.id).intent)
        if isinstance(stored, dict) and stored.get("run") == job.run:
            self._write_intent(job, stored)

    def _write_intent(self, job: Job, stored: object) -> None:
        """An unfulfilled wish to stop is rung again every round: a server may have died between write and ring."""
        run_dir = self._home.run_dir(job.id)
        intent = RunIntent(_WANTS[job.intent], job.run, job.devices, job.max_failures, _chosen_snapshot(job))
        changed = stored != intent.to_json()
        if changed:
            write_json(run_dir.intent, intent.to_json())
        if changed or intent.intent is not JobIntent.RUN:
            notify(run_dir, ControlMessage(MessageType.INTENT))

    def _bring_back_keeper(self, job: Job) -> None:
        """Launch the keeper of a job that has none: its first one, or the next after a lost one."""
        if self._keepers.crash_looping(job):
            self._give_up(job)
            return
        if job.state is JobState.RUNNING:
            reason = "the keeper was lost; another one takes over"
            job = self._store.transition(job.id, JobState.RECOVERING, expected={job.state}, reason=reason) or job
        self._keepers.launch(job)

    def _launch_keeper(self, job: Job) -> "subprocess.Popen[bytes]":
        """The intent first: it is the first thing that a keeper reads."""
        self._write_intent(job, read_json(self._home.run_dir(job.id).intent))
        return self._launch(job)

    def _give_up(self, job: Job) -> None:
        run_dir = self._home.run_dir(job.id)
        tail = _tail(run_dir.keeper_log)
        message = f"The job's keeper could not start, or ended before it got anywhere; see {run_dir.keeper_log}"
        outcome = Outcome(OutcomeClass.LAUNCH_ERROR, message, retryable=False, evidence={"keeper_log": tail})
        self._store.transition(
            job.id,
            JobState.FAILED,
            expected=HOLDING_SLOTS,
            reason=f"{OutcomeClass.LAUNCH_ERROR}: {message}",
            outcome=outcome.to_json(),
            devices=[],
            ended_at=time.time(),
        )
        free_memory(run_dir)

    # --- the queue

    def _serve_queue(self) -> None:
        revision = self._store.queue_revision
        if revision == self._planned:
            return
        self._settle_wishes()
        taken = [name for job in self._store.jobs_in(HOLDING_SLOTS) for name in job.devices]
        plan = allocate(self._store.queue(), self._machine, taken, cache(self._store.job_state))
        self._store.update_queue(plan.queue_positions)
        for job, devices in plan.starts:
            self._start(job, devices)
        self._planned = revision

    def _settle_wishes(self) -> None:
        """A queued job has no keeper to carry out a wish: it comes true at once."""
        for job in self._store.jobs_in({JobState.QUEUED}, {JobIntent.DRAIN}):
            self._store.set_intent(job.id, JobIntent.HOLD, expected={JobIntent.DRAIN})
        for job in self._store.jobs_in({JobState.QUEUED}, {JobIntent.CANCEL}):
            outcome = Outcome(OutcomeClass.CANCELLED, "Cancelled while it was in the queue.", retryable=False)
            cancelled = self._store.transition(
                job.id,
                JobState.CANCELLED,
                expected={JobState.QUEUED},
                reason="cancelled in the queue",
                outcome=outcome.to_json(),
                ended_at=time.time(),
            )
            if cancelled is not None:
                free_memory(self._home.run_dir(job.id))

    def _start(self, job: Job, devices: list[str]) -> None:
        """Give the slots away; the next round sees a job without a keeper and launches it."""
        self._store.transition(
            job.id,
            JobState.STARTING,
            expected={JobState.QUEUED},
            reason=f"got {', '.join(devices)}",
            devices=devices,
            run=job.run + 1,
            started_at=job.started_at or time.time(),
        )
        self.wake()

    # --- the deleted

    def _bury(self) -> None:
        for tombstone in self._store.tombstones(self._buried):
            self._doomed.add(tombstone.job_id)
            self._buried = tombstone.id
        self._doomed = {job_id for job_id in self._doomed if not remove_run(self._home, job_id)}

    def _sweep_bundles(self) -> None:
        if time.monotonic() - self._swept_at >= _SWEEP:
            self._swept_at = time.monotonic()
            sweep_bundles(self._home, self._store)

    # --- trouble

    def _guarded(self, subject: str, action: Callable[[], None]) -> None:
        """Do ``action``; whatever goes wrong is logged once until it changes, and the loop goes on."""
        try:
            action()
            self._troubles.pop(subject, None)
        except Exception as error:  # noqa: BLE001 - the loop must outlive any trouble with one job or one disk
            if self._troubles.get(subject) != repr(error):
                self._troubles[subject] = repr(error)
                _log.error("The engine has trouble", subject=subject, exc_info=error)
                self._note(subject, error)

    def _note(self, subject: str, error: Exception) -> None:
        """Show the trouble on the job, if ``subject`` is one."""
        text = f"The server has trouble with this job: {error}".encode(errors="replace").decode()
        with suppress(Exception):  # it is in the log already, and often the database itself is the trouble
            self._store.update_progress(subject, notice=text)


def _chosen_snapshot(job: Job) -> int | None:
    """The step that this run begins from; a choice for an earlier run was carried out then."""
    return job.rewind["step"] if job.rewind.get("run") == job.run else None


def _tail(path: Path, most_bytes: int = 4000) -> str:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - most_bytes))
            return file.read().decode(errors="replace")
    except OSError as error:
        return str(error)
