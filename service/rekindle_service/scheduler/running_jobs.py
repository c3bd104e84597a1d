"""Jobs that hold slots: their journals are read, intents reach their keepers, and a lost keeper is replaced."""

import time
from collections.abc import Callable
from functools import partial

from rekindle.contract.states import HOLDING_SLOTS, JobIntent, JobState
from rekindle_service.config.home import Home, is_job_id
from rekindle_service.launch.launcher import Launcher, LauncherReport
from rekindle_service.launch.registry import Launchers
from rekindle_service.scheduler.intents import IntentWriter
from rekindle_service.scheduler.isolation import IsolatedRunner
from rekindle_service.scheduler.job_end import JobEnd
from rekindle_service.scheduler.run_sync import RunSync
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

_PROGRESS_INTERVAL = 0.5  # seconds between two reads of the ranks' status


class RunningJobs:
    """Keeps every job that holds slots supervised, each by its launcher. One thread calls it."""

    def __init__(
        self,
        store: Store,
        home: Home,
        runner: IsolatedRunner,
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
        """All of them, each by the runner. Raises StorageError."""
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
