"""Jobs that hold slots: their journals are read, intents reach their keepers, and a lost keeper is replaced."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rekindle.contract.files import read_json, write_json
from rekindle.contract.job import RunIntent
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.control_messages import ControlMessage, MessageType, notify
from rekindle.contract.states import HOLDING_SLOTS, JobIntent, JobState
from rekindle_service.config.home import Home, is_job_id
from rekindle_service.launch.launcher import Launcher, LauncherReport
from rekindle_service.launch.registry import Launchers, launcher_of, takes_slots
from rekindle_service.machine.slots import Machine, cuda_visible_devices
from rekindle_service.retention.deletions import free_memory
from rekindle_service.scheduler.limited_runner import LimitedRunner
from rekindle_service.scheduler.run_sync import RunSync
from rekindle_service.store import Store
from rekindle_service.store.mutations import is_stopping
from rekindle_service.store.tables import Job

_LEAVING_SECONDS = 10.0  # that the keeper of an earlier run may take to end
_PROGRESS_INTERVAL = 0.5  # seconds between two reads of the ranks' status


class JobEnd:
    """Nothing happens to a job whose state has changed meanwhile. All raise StorageError."""

    def __init__(self, store: Store, home: Home) -> None:
        self._store, self._home = store, home

    def fail(self, job: Job, message: str, log: str) -> None:
        """Its keeper cannot be started; ``log``: the end of the keeper's log."""
        outcome = Outcome(OutcomeClass.LAUNCH_ERROR, message, retryable=False, evidence={"keeper_log": log})
        self._end(job, JobState.FAILED, outcome, f"{OutcomeClass.LAUNCH_ERROR}: {message}")

    def cancel(self, job: Job, message: str, reason: str) -> None:
        """``message`` is that of the outcome, ``reason`` that of the event."""
        outcome = Outcome(OutcomeClass.CANCELLED, message, retryable=False)
        self._end(job, JobState.CANCELLED, outcome, reason)

    def cancel_new(self, jobs: Sequence[Job], message: str, reason: str) -> None:
        """Cancel many jobs that have never run, and so have nothing outside their directories."""
        outcome = Outcome(OutcomeClass.CANCELLED, message, retryable=False)
        end = _columns(outcome)
        ids = [job.id for job in jobs]
        self._store.transition_all(ids, JobState.CANCELLED, expected={JobState.QUEUED}, reason=reason, **end)

    def requeue_held(self, job: Job, notice: str | None) -> None:
        """Back to the queue, where it waits until it is released."""
        reason = notice or "held while no keeper of it ran"
        outcome = Outcome(OutcomeClass.PREEMPTED, reason, retryable=False).to_json()
        columns: dict[str, Any] = {"intent": JobIntent.HOLD, "notice": notice, "devices": [], "next_try_at": None}
        self._store.transition(job.id, JobState.QUEUED, expected={job.state}, reason=reason, outcome=outcome, **columns)

    def _end(self, job: Job, to: JobState, outcome: Outcome, reason: str) -> None:
        if self._store.transition(job.id, to, expected={job.state}, reason=reason, **_columns(outcome)) is not None:
            free_memory(self._home.run_dir(job.id))


def _columns(outcome: Outcome) -> dict[str, Any]:
    """Columns to set when a job ends."""
    return {"outcome": outcome.to_json(), "devices": [], "ended_at": time.time()}


class IntentWriter:
    """One thread at a time may call it for one job."""

    def __init__(
        self,
        home: Home,
        healthy_seconds: float,
        log_bytes: int | None,
        host_timeout: float,
        machine: Machine,
    ) -> None:
        self._home, self._machine = home, machine
        self._healthy_seconds, self._log_bytes, self._host_timeout = healthy_seconds, log_bytes, host_timeout
        self._leaving: dict[str, tuple[int, float]] = {}  # by job: its run, and since when an earlier one's keeper ends

    def forget(self, holding: set[str]) -> None:
        """All jobs but these."""
        self._leaving = {job_id: leaving for job_id, leaving in self._leaving.items() if job_id in holding}

    def propagate(self, job: Job) -> None:
        """To the keeper of this run only: one of an earlier run that is about to end must not act on it."""
        stored = read_json(self._home.run_dir(job.id).intent)
        if not self._is_of_earlier_run(job, stored):
            self._write(job, stored)

    def _is_of_earlier_run(self, job: Job, stored: object) -> bool:
        """Whether ``stored`` is for a keeper that is still about to end; a job may have written anything there."""
        run = stored.get("run") if isinstance(stored, dict) else None
        if type(run) is not int or run >= job.run:
            return False
        known, since = self._leaving.get(job.id, (None, 0.0))
        if known != job.run:
            since = time.monotonic()
            self._leaving[job.id] = job.run, since
        return time.monotonic() - since < _LEAVING_SECONDS

    def write(self, job: Job) -> None:
        """Before a keeper is launched, for which it is. Raises OSError."""
        self._write(job, read_json(self._home.run_dir(job.id).intent))

    def _write(self, job: Job, stored: object) -> None:
        """A pending request to stop is sent again every time: a server may have died between writing and notifying."""
        run_dir = self._home.run_dir(job.id)
        is_held = job.intent is JobIntent.HOLD  # after it had left the queue
        is_displaced = job.intent is JobIntent.RUN and is_stopping(job)
        devices = job.wanted_devices or job.devices
        intent = RunIntent(
            JobIntent.DRAIN if is_held or is_displaced else job.intent,
            job.run,
            devices,
            job.max_failures,
            healthy_seconds=self._healthy_seconds,
            log_bytes=self._log_bytes,
            launch=job.launch_number,
            host_timeout=self._host_timeout,
            gpus=self._gpus(job, devices),
            reason=job.displaced["reason"] if job.displaced and job.intent is JobIntent.RUN else None,
            excluded={host: node["reason"] for host, node in (job.slurm or {}).get("excluded", {}).items()},
            **_chosen(job),
        )
        changed = stored != intent.to_json()
        if changed:
            self._leaving.pop(job.id, None)
            if run_dir.intent.is_dir() and not run_dir.intent.is_symlink():
                run_dir.intent.rename(run_dir.root / f".{run_dir.intent.name}.{time.time_ns()}")  # the job has made it
            write_json(run_dir.intent, intent.to_json())
        if (changed or intent.intent is not JobIntent.RUN) and not launcher_of(job.spec).is_remote:
            notify(run_dir, ControlMessage(MessageType.INTENT))

    def _gpus(self, job: Job, devices: list[str]) -> list[str] | None:
        """The devices as the keeper is to name them to the ranks; None where it has no say in that."""
        if not takes_slots(job.spec) or job.spec.device_kind != "cuda":
            return None
        return cuda_visible_devices(self._machine.slots, devices).split(",")


def _chosen(job: Job) -> dict[str, Any]:
    """What this run begins from, as fields of the intent; a choice for an earlier run was applied then."""
    if job.rewind.get("run") != job.run:
        return {}
    return {"snapshot": job.rewind.get("step"), "checkpoint": job.rewind.get("path")}


class RunningJobs:
    """Keeps every job that holds slots supervised, each by its launcher. One thread calls it."""

    def __init__(
        self,
        store: Store,
        home: Home,
        runner: LimitedRunner,
        intents: IntentWriter,
        launchers: Launchers,
        on_end: Callable[[], None],
    ) -> None:
        """``on_end`` is called, in another thread, when a keeper on this machine has ended."""
        self._store, self._runner, self._intents, self._launchers = store, runner, intents, launchers
        self._sync = RunSync(store, home)
        self._end = JobEnd(store, home)
        for launcher in launchers:
            launcher.on_end = on_end
        self._progress_at = 0.0  # time.monotonic() of the last read of the ranks' status

    def detach(self) -> None:
        """Keepers and their jobs continue."""
        for launcher in self._launchers:
            launcher.detach()

    def reconcile(self) -> None:
        """Reconcile each job by the runner. Raises StorageError."""
        jobs = self._store.holding()
        holding = {job.id for job in jobs}
        for launcher in self._launchers:
            launcher.observe([job for job in jobs if self._launchers.of(job.spec) is launcher])
        self._runner.forget(self._is_over)
        self._intents.forget(holding)
        read_progress = time.monotonic() - self._progress_at >= _PROGRESS_INTERVAL
        if read_progress:
            self._progress_at = time.monotonic()
        for job in jobs:
            self._runner.run(job.id, partial(self._reconcile_job, job, read_progress))

    def _is_over(self, subject: str) -> bool:
        return is_job_id(subject) and self._store.job_state(subject) not in HOLDING_SLOTS | {JobState.QUEUED}

    def _reconcile_job(self, job: Job, read_progress: bool) -> None:
        """Read what happened, propagate the intent, and make sure that there is a keeper."""
        launcher = self._launchers.of(job.spec)
        alive = launcher.alive(job)  # checked before reading: a keeper writes its last record, then ends
        job = self._sync.read_journal(job, launcher.seconds_ahead(job))
        if job.state not in HOLDING_SLOTS:
            self._sync.unmirrored.pop(job.id, None)
            return
        if job.id in self._sync.unmirrored:
            self._await_mirror(job, self._sync.unmirrored[job.id])
            return
        report = launcher.report(job)
        job = self._show_report(job, report)
        if alive:
            self._intents.propagate(job)
            if job.intent is not JobIntent.RUN and report.waiting_for is not None:
                launcher.stop(job)
        elif alive is not None:
            self._replace_keeper(job, launcher, report)
            return
        if read_progress and job.state is JobState.RUNNING:
            self._sync.read_progress(job)

    def _await_mirror(self, job: Job, reason: str) -> None:
        """Its keeper is done, and needs no slots any more. Whoever cancels it does not wait."""
        if job.intent is not JobIntent.RUN:
            del self._sync.unmirrored[job.id]
            self._end_stopped(job)
        elif job.waiting_for != reason:
            idle = {"devices": [], "can_resize": False, "phase": None, "steps_per_second": None, "eta_seconds": None}
            self._store.update_progress(job.id, waiting_for=reason, **idle)

    def _show_report(self, job: Job, report: LauncherReport) -> Job:
        """What the launcher knows, on the row."""
        if report.queued_again and job.state is JobState.RUNNING:
            job = self._set_recovering(job, report.waiting_for or "its keeper does not run now")
        shown = {} if report.columns is None else {"waiting_for": report.waiting_for, **report.columns}
        if all(getattr(job, name) == value for name, value in shown.items()):
            return job
        return self._store.update_progress(job.id, **shown) or job

    def _replace_keeper(self, job: Job, launcher: Launcher, report: LauncherReport) -> None:
        """Launch another one, unless the job is to end and that would take an allocation elsewhere."""
        if launcher.is_remote and job.intent is not JobIntent.RUN:
            launcher.stop(job)
            self._end_stopped(job)
        elif report.withdrawn is not None:
            self._end.requeue_held(job, report.withdrawn)
        else:
            self._relaunch_keeper(job, launcher)

    def _end_stopped(self, job: Job) -> None:
        """End the run of a job that is to stop and of which no keeper runs."""
        if job.intent is JobIntent.CANCEL:
            reason = "cancelled while no keeper of it ran"
            self._end.cancel(job, "Cancelled while no keeper of it ran.", reason)
        else:
            self._end.requeue_held(job, None)

    def _relaunch_keeper(self, job: Job, launcher: Launcher) -> None:
        """Launch the keeper of a job that has none: the first, or the next after a lost one."""
        if launcher.crash_looping(job):
            self._end.fail(job, *launcher.failure(job))
            return
        if job.state is JobState.RUNNING:
            job = self._set_recovering(job, launcher.why_lost(job))
        launcher.launch(job, self._intents.write)

    def _set_recovering(self, job: Job, reason: str) -> Job:
        return self._store.transition(job.id, JobState.RECOVERING, expected={job.state}, reason=reason) or job
