"""Faults in one job: wait until it is ready, inject one, and watch until the job has recovered."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from rekindle.contract.chaos import Fault
from rekindle_service.cli import formatting
from rekindle_service.cli.chaos.report import FaultReport, diagnosis_correct
from rekindle_service.cli.chaos.schedule import SERVER, PlannedFault
from rekindle_service.client import Attempt, Client, FaultInjection, Job, ProblemError, Rank, is_settled
from rekindle_service.client import Fault as InjectedRecord

_POLL_INTERVAL = 0.1  # seconds
_KEEPER_TIMEOUT = 15.0  # seconds in which a keeper injects a fault
_SNAPSHOT_TIMEOUT = 15.0  # seconds after which an attempt without a snapshot of its own counts as making progress
_REPORT_TIMEOUT = 5.0  # seconds after which a script without reports is one that reports nothing


@dataclass(frozen=True, slots=True)
class Observation:
    """A job and the ranks of its latest attempt."""

    job: Job
    ranks: list[Rank]

    @property
    def attempt(self) -> int:
        return self.job["attempt"]

    @property
    def step(self) -> int | None:
        """The last step that any rank has finished, None for a script that reports none."""
        return max((rank["step"] for rank in self.ranks if rank["step"] is not None), default=None)

    @property
    def resumed_from_step(self) -> int:
        """The ranks report it a moment before the attempt does."""
        return max((rank["resumed_from_step"] or 0 for rank in self.ranks), default=0)

    @property
    def has_recovered(self) -> bool:
        return self.job["state"] in ("running", "succeeded")

    @property
    def is_running(self) -> bool:
        all_run = bool(self.ranks) and all(rank["state"] == "running" for rank in self.ranks)
        return self.job["state"] == "running" and self.job["intent"] == "run" and all_run

    def is_training(self, *, reports_steps: bool) -> bool:
        """Whether the attempt has finished a step of its own; without steps, whether its ranks run."""
        if not reports_steps:
            return self.is_running
        return self.job["state"] == "running" and (self.step or 0) > self.resumed_from_step

    def has_progress(self, running_seconds: float) -> bool:
        """Whether a failure now would count as one after progress, as far as can be observed."""
        if self.step is None and not any(rank["phase"] for rank in self.ranks):
            return running_seconds >= _REPORT_TIMEOUT
        has_snapshot = any((rank["snapshot_step"] or 0) > self.resumed_from_step for rank in self.ranks)
        return has_snapshot or running_seconds >= _SNAPSHOT_TIMEOUT

    def continues(self, before: "Observation") -> bool:
        """Whether the same attempt has trained on since ``before``."""
        further = before.step is None or (self.step or 0) > before.step
        return self.attempt == before.attempt and self.is_running and further


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault that the keeper has injected."""

    injection: FaultInjection
    snapshot: int | None  # step of the damaged one
    at: float  # seconds of CLOCK_MONOTONIC


class JobSettledError(Exception):
    """No more faults can be injected into a job in this state."""


class NotInjectedError(Exception):
    """The fault did not happen."""


class FaultRun:
    """``client`` should be a reconnecting one; ``replace_server`` kills this machine's server and starts another."""

    def __init__(self, client: Client, job_id: str, replace_server: Callable[[], object]) -> None:
        self._client, self._job_id, self._replace_server = client, job_id, replace_server

    def wait_ready(
        self, delay: float = 0.0, at_step: int | None = None, *, needs_progress: bool = False
    ) -> Observation:
        """Wait until the job has run for ``delay`` seconds and has finished ``at_step``.

        ``needs_progress``: also until it would not give up for lack of progress. Raises JobSettledError.
        """
        since: float | None = None
        while True:
            now, time_now = self._observe(), time.monotonic()
            if is_settled(now.job):
                raise JobSettledError(now.job["state"])
            since = (since or time_now) if now.is_running else None
            running = 0.0 if since is None else time_now - since
            due = running >= delay and (now.step or 0) >= (at_step or 0)
            trains = now.is_running and now.is_training(reports_steps=now.step is not None)
            if due and trains and (now.has_progress(running) or not needs_progress):
                return now
            time.sleep(_POLL_INTERVAL)

    def inject(self, planned: PlannedFault, before: Observation) -> FaultReport:
        """Inject the fault and watch until the job trains again, or is settled."""
        if planned.fault == SERVER:
            return self._kill_server(before)
        fault, damaged = planned.fault, None
        try:
            if fault == Fault.CORRUPT_SNAPSHOT:  # the damage has an effect only when it is read: kill a rank at once
                fault, damaged = Fault.KILL, self._inject(fault, None).snapshot
            injected = replace(self._inject(fault, planned.rank), snapshot=damaged)
        except NotInjectedError as error:
            return FaultReport(planned.fault, planned.rank, False, before.attempt, note=f"not injected: {error}")
        after = self._wait_recovered(before, injected.injection["attempt"])
        return self._report(planned.fault, injected, after, time.monotonic() - injected.at)

    def _inject(self, fault: str, rank: int | None) -> InjectedFault:
        """Raises NotInjectedError when the server rejects it or the keeper does not inject it."""
        known, at = len(self._recorded_faults()), time.monotonic()
        try:
            injection = self._client.inject(self._job_id, fault, rank)
        except ProblemError as error:
            raise NotInjectedError(str(error)) from error
        deadline = time.monotonic() + _KEEPER_TIMEOUT
        while time.monotonic() < deadline:
            recorded = self._recorded_faults()
            if len(recorded) > known:
                return InjectedFault(injection, recorded[-1]["snapshot"], at)
            time.sleep(_POLL_INTERVAL)
        raise NotInjectedError(f"the job's keeper did not respond within {_KEEPER_TIMEOUT:g} s")

    def _recorded_faults(self) -> list[InjectedRecord]:
        return [fault for attempt in self._client.attempts(self._job_id) for fault in attempt["faults"]]

    def _report(self, fault: str, injected: InjectedFault, after: Observation, seconds: float) -> FaultReport:
        number, rank = injected.injection["attempt"], injected.injection["rank"]
        report = FaultReport(fault, rank, after.has_recovered, number, after.attempt, injected.snapshot)
        if after.has_recovered and after.attempt == number:
            return replace(report, note="the job ended before the fault had an effect")
        failed = self._attempt(number)
        report = replace(report, outcome=failed["outcome"])
        if not after.has_recovered:
            status = formatting.status_line(after.job)
            return replace(report, note=f"the job is {after.job['state']}: {status}")
        damaged = injected.snapshot is not None and injected.snapshot == after.resumed_from_step
        note = "it resumed from the damaged snapshot" if damaged else ""
        correct, replayed = diagnosis_correct(fault, rank, failed["outcome"]), failed["replayed_steps"]
        report = replace(report, downtime=seconds, replayed_steps=replayed, diagnosis_correct=correct)
        return replace(report, recovered=not damaged, note=note)

    def _attempt(self, number: int) -> Attempt:
        """The attempt, once its replayed steps are known, or cannot be."""
        deadline = time.monotonic() + _REPORT_TIMEOUT
        while True:
            attempt = next(one for one in self._client.attempts(self._job_id) if one["number"] == number)
            known = attempt["last_step"] is None or attempt["replayed_steps"] is not None
            if known or time.monotonic() > deadline:
                return attempt
            time.sleep(_POLL_INTERVAL)

    def _kill_server(self, before: Observation) -> FaultReport:
        """The job has recovered when its ranks have finished another step, which they should in the same attempt."""
        start = time.monotonic()
        self._replace_server()
        unavailable = time.monotonic() - start
        after = self._wait_recovered(before, before.attempt, same_attempt=True)
        report = FaultReport(SERVER, None, after.has_recovered, before.attempt, after.attempt, downtime=0.0)
        note = f"no server for {unavailable:.1f} s"
        if after.attempt == before.attempt:
            return replace(report, note=note)
        return replace(report, downtime=time.monotonic() - start, note=f"{note}, and the ranks were restarted")

    def _wait_recovered(self, before: Observation, attempt: int, *, same_attempt: bool = False) -> Observation:
        """The job when an attempt after ``attempt`` trains, or it is settled.

        ``same_attempt``: also when the attempt of ``before`` has trained on.
        """
        while True:
            now = self._observe()
            restarted = now.attempt > attempt and now.is_training(reports_steps=before.step is not None)
            if restarted or (same_attempt and now.continues(before)) or is_settled(now.job):
                return now
            time.sleep(_POLL_INTERVAL)

    def _observe(self) -> Observation:
        job = self._client.job(self._job_id)
        return Observation(job, self._client.ranks(self._job_id, job["attempt"]) if job["attempt"] else [])
