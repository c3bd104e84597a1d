"""Keepers on Slurm: each launch of a job is one Slurm job, named after both, so that it is found whatever happens."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from rekindle.contract.job import JobSpec
from rekindle.contract.outcome import OutcomeClass
from rekindle.contract.safe_open import list_numbers, read_end
from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.launch.launcher import LaunchCounts, Launcher, LauncherParts, LauncherReport, keeper_failure
from rekindle_service.launch.placement import Placement, choose_launch_mode
from rekindle_service.launch.slurm.batch_job import LaunchFiles
from rekindle_service.launch.slurm.coordinator_reports import EVIDENCE_BYTES, MAX_NODES, Beats, ExcludedNodes, bad_nodes
from rekindle_service.launch.slurm.poller import Listing, SlurmPoller
from rekindle_service.launch.slurm.slurm_commands import (
    RefusedError,
    SlurmCommands,
    SlurmJob,
    Stage,
    job_name,
    missing_commands,
)
from rekindle_service.launch.slurm.slurm_reasons import ending_words, running_words, waiting_words
from rekindle_service.launch.slurm.slurm_requests import SlurmRequests
from rekindle_service.store import Store
from rekindle_service.store.tables import NEW_SLURM_LAUNCH, Job
from rekindle_service.submission import FieldError, Submission

_SILENCE = 15.0  # seconds beyond ``host_timeout`` after which a coordinator counts as lost
_COMPLETING_SILENCE = 15.0  # seconds after which one whose Slurm job is being cleaned up counts as ended
_STOPPED_SILENCE = 120.0  # likewise where Slurm has stopped it: only the state that follows shows who wanted that
_START_INTERVAL = 10.0  # seconds between two requests to start a job that Slurm has queued again
_MAX_LAUNCH = 1 << 30
_INFRASTRUCTURE_ENDS = frozenset({"NODE_FAIL", "PREEMPTED", "BOOT_FAIL"})
"""Not counted as failures."""

NO_COMMANDS = "Slurm, whose commands this server does not find: install them (slurm-client) or cancel the job"
NO_SLURM = "a server needs Slurm's commands (sbatch, squeue, scancel, scontrol, srun, sinfo) on its PATH"
_ISOLATED = "jobs on Slurm run as the user of the server, which job_users and sandbox forbid"
_CANNOT_START = "launch failed requeued held"


@dataclass(slots=True)
class _Known:
    """What this server remembers of one job."""

    counts: LaunchCounts
    started_at: float = float("-inf")  # time.monotonic() of the latest request to start a requeued job
    stopped: set[int] = field(default_factory=set)  # ids of Slurm jobs that this server has cancelled
    excluded: set[str] = field(default_factory=set)  # nodes that the latest launch must not get
    trusts_others: bool = True  # as long as Slurm has nodes without those that other jobs have found


class SlurmLauncher(Launcher):
    """Keepers on the nodes of a Slurm cluster."""

    name, title = "slurm", "Slurm"
    takes_slots, is_remote = False, True

    def __init__(
        self,
        home: Home,
        store: Store,
        commands: SlurmCommands,
        poller: SlurmPoller,
        files: LaunchFiles,
        host_timeout: float,
        *,
        python: str = sys.executable,
        lack: str | None = None,
        refusal: str | None = None,
    ) -> None:
        """``python``: the interpreter of jobs that name none.

        ``lack``: what stored jobs wait for on a server that cannot use Slurm; ``refusal``: why it takes no jobs."""
        self._home, self._store, self._poller, self._files = home, store, poller, files
        self._host_timeout, self._lack, self._no_jobs = host_timeout, lack, refusal
        self._python = python
        self._requests = SlurmRequests(commands, store, home)
        self._beats = Beats(home.root)
        self._excluded = ExcludedNodes()
        self._known: dict[str, _Known] = {}
        self._since = time.monotonic()

    @classmethod
    def claims(cls, spec: JobSpec) -> bool:
        return spec.slurm is not None

    @classmethod
    def create(cls, parts: LauncherParts) -> Self:
        home, settings, commands = parts.home, parts.settings, SlurmCommands()
        lack = NO_COMMANDS if missing_commands() else None
        refusal = _ISOLATED if parts.isolation.hides_the_server else None if lack is None else NO_SLURM
        files = LaunchFiles(home, parts.worker_path)
        poller = SlurmPoller(commands, settings.slurm_poll_seconds)
        python, timeout = settings.python or sys.executable, settings.host_timeout
        return cls(home, parts.store, commands, poller, files, timeout, python=python, lack=lack, refusal=refusal)

    # --- at submit

    def fill_in(self, submission: Submission) -> Submission:
        if not submission.spec.python:
            submission = replace(submission, spec=replace(submission.spec, python=self._python))
        return submission if self._no_jobs is not None else self._requests.fill_in(submission)

    def place(self, submission: Submission) -> Placement:
        """Slurm chooses the devices; of which kind they are, ``fill_in`` has asked it."""
        spec, reason = choose_launch_mode(submission, submission.spec)
        return Placement(spec if spec.device != "auto" else replace(spec, device="cpu"), reason)

    def validate(self, spec: JobSpec) -> list[FieldError]:
        if self._no_jobs is None:
            return self._requests.errors(spec)
        if spec.nodes > 1:
            nodes = {"min": spec.min_nodes, "max": spec.nodes}
            return [FieldError("nodes", "must be 1 on a server without Slurm", nodes, self._no_jobs)]
        return [FieldError("slurm", "must be omitted on a server without Slurm", {}, self._no_jobs)]

    def obstacle(self) -> str | None:
        return self._lack

    # --- where it is

    def observe(self, jobs: Sequence[Job]) -> None:
        if self._lack is not None:
            return
        self._poller.want(bool(jobs))
        ids = {job.id for job in jobs}
        for job_id in [each for each in list(self._known) if each not in ids]:
            self._known.pop(job_id, None)
        self._beats.forget(ids)
        self._excluded.forget(ids)
        self._poller.forget({job_name(job.id, job.launch_number) for job in jobs})

    def alive(self, job: Job) -> bool | None:
        """What Slurm says counts, and of a running Slurm job or a forgotten one the keeper's own signs of life."""
        if self._lack is not None:
            return None
        if job.slurm is None:
            return False
        name = _name(job)
        if self._poller.submitting(name):
            return True
        if self._refusal(job) is not None:
            return False
        listing, submission = self._poller.listing, self._poller.submission(name)
        settled_at = self._since if submission is None else submission.at
        if listing.problem is not None or listing.asked_at < settled_at:
            return None
        self._cancel_others(job)
        found = listing.jobs.get(name)
        if found is None:
            return job.slurm.get("job_id") is not None and self._speaks(job, self._limit)
        return self._is_alive(job, found)

    def _is_alive(self, job: Job, found: SlurmJob) -> bool:
        match found.stage:
            case Stage.ENDED:
                return False
            case Stage.RUNNING if found.state == "COMPLETING":
                return not self._is_silent(job, _STOPPED_SILENCE if _was_preempted(job) else _COMPLETING_SILENCE)
            case Stage.RUNNING:
                return not self._is_silent(job, self._limit)
            case Stage.WAITING if found.reason == _CANNOT_START:
                return False
            case Stage.WAITING:
                self._end_wait(job, found)
        self._beats.restart(self._home.run_dir(job.id), job.launch_number)
        return True

    @property
    def _limit(self) -> float:
        return self._host_timeout + _SILENCE

    def _is_silent(self, job: Job, seconds: float) -> bool:
        changed_at = self._beats.changed_at(self._home.run_dir(job.id), job.launch_number)
        return time.monotonic() - changed_at > seconds

    def _speaks(self, job: Job, seconds: float) -> bool:
        """Whether the keeper has given a sign of life lately, as far as this server can know."""
        run_dir = self._home.run_dir(job.id)
        return self._beats.content(run_dir, job.launch_number) is not None and not self._is_silent(job, seconds)

    def _had_started(self, job: Job) -> bool:
        return self._home.run_dir(job.id).launch(job.launch_number).leader.exists()

    def _end_wait(self, job: Job, found: SlurmJob) -> None:
        """Slurm holds a job that it has queued again for two minutes."""
        known = self._known.get(job.id)
        if found.reason != "BeginTime" or not self._had_started(job):
            return
        if known is None:
            known = self._known[job.id] = _Known(LaunchCounts(job.run, job.journal_offset))
        if time.monotonic() - known.started_at >= _START_INTERVAL:
            known.started_at = time.monotonic()
            self._poller.start_now(found.id)

    def _cancel_others(self, job: Job) -> None:
        """Slurm jobs of earlier launches, which may act no more: one that was thought lost, or was submitted twice."""
        for each in self._poller.listing.by_job.get(job.id, ()):
            if each.name != _name(job) and each.stage is not Stage.ENDED:
                self._poller.cancel(each.id)

    # --- what is known of it

    def report(self, job: Job) -> LauncherReport:
        listing, found = self._poller.listing, self._poller.listing.jobs.get(_name(job))
        if self._lack is not None or (job.slurm is None and listing.problem is None):
            return _report(job.slurm, self._lack)
        if job.slurm is None:
            return self._unknown(job, NEW_SLURM_LAUNCH, listing)
        columns = dict(job.slurm)
        submission = self._poller.submission(_name(job))
        if submission is not None and submission.slurm_id is not None:
            columns["job_id"] = submission.slurm_id
        self._note_nodes(job, found)
        columns["excluded"] = self._excluded.column(job)
        if (refusal := self._refusal(job)) is not None:
            return _report({**columns, "state": None, "reason": str(refusal)}, f"Slurm: {refusal}")
        if listing.problem is not None:
            return self._unknown(job, columns, listing)
        if found is None:
            waiting = "Slurm to take the job" if columns.get("job_id") is None else None
            return _report({**columns, "reason": None}, waiting)
        return self._found(job, found, columns)

    def _note_nodes(self, job: Job, found: SlurmJob | None) -> None:
        """What the coordinator says of its nodes."""
        beat = self._beats.content(self._home.run_dir(job.id), job.launch_number)
        if beat is None or found is None or found.state not in ("RUNNING", "FAILED"):
            return
        self._exclude(job, found, beat.excluded)
        if found.state == "RUNNING":
            self._excluded.remove(job, set(found.hosts) - beat.missing.keys())

    def seconds_ahead(self, job: Job) -> float:
        """Raises OSError."""
        return self._beats.seconds_ahead(self._home.run_dir(job.id), job.launch_number)

    def _found(self, job: Job, found: SlurmJob, columns: Mapping[str, Any]) -> LauncherReport:
        waits = found.stage in (Stage.WAITING, Stage.STOPPED)
        words = waiting_words(found) if waits else None
        if found.stage is Stage.ENDED or found.state == "COMPLETING":
            words = ending_words(found)
        if found.state == "RUNNING" and job.state is JobState.RUNNING:
            beat = self._beats.content(self._home.run_dir(job.id), job.launch_number)
            words = running_words(found, beat, self.seconds_ahead(job))
        if found.stage is Stage.WAITING:
            self._end_exclusion(job, found)
        columns = {**columns, "job_id": found.id, "state": found.state, "reason": words, "hosts": list(found.hosts)}
        withdrawn = None
        if found.state == "CANCELLED" and not self._was_stopped(job, found):
            withdrawn = f"Slurm job {found.id} was cancelled in Slurm: resume the job to let it continue"
        again = found.stage is Stage.WAITING and self._was_queued_again(job)
        return replace(_report(columns, words if waits else None), queued_again=again, withdrawn=withdrawn)

    def _end_exclusion(self, job: Job, found: SlurmJob) -> None:
        """A job that waits may get nodes that are not excluded any more."""
        known = self._known.get(job.id)
        if known is not None and (over := known.excluded - self._excluded.for_job(job).keys()):
            known.excluded -= over
            self._poller.exclude(found.id, sorted(known.excluded))

    def _was_queued_again(self, job: Job) -> bool:
        """The listing may be older than the start of the keeper."""
        written_at = self._beats.written_at(self._home.run_dir(job.id), job.launch_number)
        return self._had_started(job) and self._poller.listing.asked_at >= written_at

    def _unknown(self, job: Job, columns: Mapping[str, Any], listing: Listing) -> LauncherReport:
        at, problem = datetime.fromtimestamp(listing.problem_since, UTC), listing.problem
        subject = "what became of the job" if columns.get("job_id") is None else f"Slurm job {columns['job_id']}"
        words = f"Slurm has not answered since {at:%H:%M} UTC ({problem}): the state of {subject} is unknown"
        waiting = None if self._had_started(job) else words
        return _report(None if job.slurm is None else {**columns, "state": "UNKNOWN", "reason": words}, waiting)

    def why_lost(self, job: Job) -> str:
        return (job.slurm or {}).get("reason") or "the coordinator was lost"

    def _was_stopped(self, job: Job, found: SlurmJob) -> bool:
        known = self._known.get(job.id)
        by_this = known is not None and found.id in known.stopped
        return by_this or (job.slurm is not None and job.slurm.get("stopped") is True)

    def _refusal(self, job: Job) -> RefusedError | None:
        """Why ``sbatch`` has not taken the current launch."""
        submission = self._poller.submission(_name(job))
        return submission.error if submission is not None and isinstance(submission.error, RefusedError) else None

    # --- ends

    def crash_looping(self, job: Job) -> bool:
        known = self._known.get(job.id)
        if known is None or known.counts.run != job.run:
            return False
        refusal = self._refusal(job)
        if refusal is not None and not refusal.temporary:
            if not known.trusts_others or known.excluded <= self._excluded.own(job).keys():
                return True
            known.trusts_others = False
        if known.counts.counted:
            return known.counts.crash_looping
        submission = self._poller.submission(_name(job))
        found = self._poller.listing.jobs.get(_name(job))
        failed = submission is not None and submission.error is not None
        if not failed and found is not None and found.state == "FAILED":
            reasons = bad_nodes(self._home.run_dir(job.id), job.launch_number, found)
            self._exclude(job, found, reasons)
        has_found_bad_nodes = not self._excluded.own(job).keys() <= known.excluded
        if failed or has_found_bad_nodes or (found is not None and found.state in _INFRASTRUCTURE_ENDS):
            known.counts.count_host_failure()
        else:
            known.counts.count_end(job)
        return known.counts.crash_looping or len(self._excluded.own(job)) >= MAX_NODES

    def _exclude(self, job: Job, found: SlurmJob, reasons: Mapping[str, str]) -> None:
        """Take over the reasons of nodes that Slurm had given to the job, which may write anything into its files."""
        self._excluded.add(job, {host: reason for host, reason in reasons.items() if host in found.hosts})

    def failure(self, job: Job) -> tuple[str, str]:
        refusal, nodes = self._refusal(job), self._excluded.own(job)
        if nodes and (refusal is not None or len(nodes) >= MAX_NODES):
            needed = job.spec.min_nodes
            left = "No usable node is left" if needed == 1 else f"Fewer than {needed} usable nodes are left"
            left = left if refusal is not None else f"{len(nodes)} nodes cannot run the job"
            named = "; ".join(f"{host}: {node.reason}" for host, node in nodes.items())
            return f"{left}: {named}", "" if refusal is None else f"Slurm without these nodes: {refusal}"
        if refusal is not None:
            return f"Slurm refuses the job: {refusal}", ""
        log, tail = self._log_tail(job)
        own = [line for line in tail.splitlines() if line.startswith("rekindle: ")]
        if own:
            return f"The job cannot start on Slurm: {own[-1].removeprefix('rekindle: ')}", tail
        if not tail.strip():
            reason = "its nodes may not see this directory: rekindle doctor --slurm checks that"
            return f"The job ends on Slurm as soon as it starts, and leaves nothing in {log}; {reason}", ""
        return keeper_failure("The coordinator", tail, log), tail

    def _log_tail(self, job: Job) -> tuple[Path, str]:
        """The log of the current launch, and its end."""
        log = self._home.run_dir(job.id).launch(job.launch_number).slurm_log
        return log, read_end(log, EVIDENCE_BYTES)

    # --- actions

    def launch(self, job: Job, write_intent: Callable[[Job], None]) -> None:
        known = self._known.get(job.id)
        if known is None or known.counts.run != job.run:
            known = _Known(LaunchCounts(job.run, job.journal_offset))
        if known.counts.too_early or self._poller.listing.problem is not None:
            return
        self.stop(job)
        counts = replace(known.counts, journal_offset=job.journal_offset, counted=False)
        excluded = set(self._excluded.for_job(job) if known.trusts_others else self._excluded.own(job))
        self._known[job.id] = replace(known, counts=counts, excluded=excluded)
        column = {**NEW_SLURM_LAUNCH, "excluded": self._excluded.column(job)}
        row = self._store.update_progress(job.id, launch_number=self._next_launch(job), slurm=column)
        if row is None:
            return
        try:
            write_intent(row)
            options, script = self._files.write(row, excluded)
        except OSError:
            counts.count_host_failure()
            raise
        self._poller.submit(_name(row), options, script)

    def _next_launch(self, job: Job) -> int:
        """A number that no keeper can have, unless Slurm has certainly not taken the job of the current one."""
        used = list_numbers(self._home.run_dir(job.id).launches, _MAX_LAUNCH)
        latest = max([job.launch_number, *used])
        return latest if job.launch_number == latest and self._refusal(job) is not None else latest + 1

    def stop(self, job: Job) -> None:
        found = self._poller.listing.jobs.get(_name(job))
        if job.slurm is None or found is None or found.stage is Stage.ENDED:
            return
        known = self._known.setdefault(job.id, _Known(LaunchCounts(job.run, job.journal_offset)))
        if found.id not in known.stopped:
            known.stopped.add(found.id)
            self._store.update_progress(job.id, slurm={**job.slurm, "stopped": True})
        self._poller.cancel(found.id)

    def detach(self) -> None:
        with suppress(RuntimeError):
            self._poller.close()


def _report(column: dict[str, Any] | None, waiting_for: str | None) -> LauncherReport:
    return LauncherReport(waiting_for, columns={"slurm": column})


def _was_preempted(job: Job) -> bool:
    """Its ranks have ended because the coordinator got SIGTERM."""
    return (job.outcome or {}).get("class") == OutcomeClass.PREEMPTED


def _name(job: Job) -> str:
    return job_name(job.id, job.launch_number)
