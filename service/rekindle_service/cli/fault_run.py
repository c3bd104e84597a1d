"""Faults in one job: which to inject, how the job recovers from each, and what each cost."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import typer

from rekindle.contract.outcome import OutcomeClass
from rekindle.contract.run_dir.control_messages import RANK_FAULTS, Fault
from rekindle_service.cli import formatting
from rekindle_service.cli.formatting import ABSENT
from rekindle_service.client import Attempt, Client, FaultInjection, Job, Outcome, ProblemError, Rank, is_settled
from rekindle_service.client import Fault as InjectedRecord
from rekindle_service.sanitize import sanitize_line
from rekindle_service.suggestions import closest

# --- which faults

SERVER = "server"
"""A fault of the command line itself: kill -9 of this machine's server, which is then started again."""

MEAN_INTERVAL = 3.0  # seconds before a fault at a random time, unless --every sets it

KNOWN_FAULTS = (*(fault.value for fault in Fault), SERVER)


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    """The options of `rekindle chaos`."""

    faults: Sequence[str] = ()  # none: kill, or with ``random`` any but ``server``
    rank: int | None = None
    count: int | None = None  # None: each fault once
    every: float | None = None  # seconds that the job runs before each fault; with ``random`` on average
    random: bool = False

    @property
    def total(self) -> int:
        return self.count or len(self.faults) or 1


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """``rank`` is None where the fault targets no rank, or the server may choose one."""

    fault: str
    rank: int | None
    delay: float  # seconds that the job is to run before it


def plan_faults(options: ChaosOptions, world_size: int, generator: random.Random) -> list[PlannedFault]:
    """The faults in order. Raises typer.BadParameter for a rank that a job of ``world_size`` ranks does not have."""
    if options.rank is not None and options.rank >= world_size:
        raise typer.BadParameter(f"--rank {options.rank}: the last rank of the job is {world_size - 1}")
    pool = options.faults or ([fault.value for fault in Fault] if options.random else [Fault.KILL.value])
    planned = []
    for index in range(options.total):
        fault, rank, delay = pool[index % len(pool)], options.rank, options.every or 0.0
        if options.random:
            fault = generator.choice(pool)
            rank = generator.randrange(world_size) if rank is None else rank
            delay = generator.uniform(0, 2 * (MEAN_INTERVAL if options.every is None else options.every))
        has_rank = fault in RANK_FAULTS or fault == Fault.CORRUPT_SNAPSHOT
        planned.append(PlannedFault(fault, rank if has_rank else None, delay))
    return planned


def parse_fault(name: str) -> str:
    """``name`` if it is a fault. Raises typer.BadParameter with the known ones."""
    if name not in KNOWN_FAULTS:
        near = "".join(f"did you mean {each!r}? " for each in closest(name, KNOWN_FAULTS)[:1])
        raise typer.BadParameter(f"unknown fault {name!r}; {near}known: {', '.join(KNOWN_FAULTS)}")
    return name


# --- what each cost

_EXPECTED = {
    Fault.STOP: OutcomeClass.HANG,
    Fault.RAISE: OutcomeClass.USER_ERROR,
    Fault.HANG: OutcomeClass.HANG,
    Fault.OOM: OutcomeClass.OOM,
    Fault.KEEPER: OutcomeClass.KEEPER_LOST,
}
"""The outcome class of an attempt that the fault has ended; every other fault ends it by a signal."""

COLUMNS = ("FAULT", "ATTEMPT", "RECOVERED", "DOWN", "REPLAYED", "DIAGNOSIS", "CORRECT")


@dataclass(frozen=True, slots=True)
class FaultReport:
    """One fault and its effect; None where that is not known or does not apply."""

    fault: str
    rank: int | None
    recovered: bool
    attempt_before: int
    attempt_after: int | None = None
    snapshot: int | None = None  # step of the damaged one
    downtime: float | None = None  # seconds from the fault to the next finished step
    replayed_steps: int | None = None
    outcome: Outcome | None = None  # of the attempt that the fault ended
    diagnosis_correct: bool | None = None  # None: the fault ended no attempt
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The report without the outcome's evidence, which may be long and is in `rekindle show`."""
        report = asdict(self)
        if self.outcome is not None:
            report["outcome"].pop("evidence", None)
        return report


def diagnosis_correct(fault: str, rank: int | None, outcome: Outcome | None) -> bool:
    """Whether the outcome names the class and the rank of the fault."""
    if outcome is None:
        return False
    return (outcome["class"], outcome.get("rank")) == (_EXPECTED.get(Fault(fault), OutcomeClass.SIGNAL), rank)


def report_row(report: FaultReport) -> list[str]:
    attempts = str(report.attempt_before)
    if report.attempt_after not in (None, report.attempt_before):
        attempts += f" → {report.attempt_after}"
    return [
        formatting.fault(report.fault, report.rank, report.snapshot),
        attempts,
        "yes" if report.recovered else "no",
        ABSENT if report.downtime is None else f"{report.downtime:.1f} s",
        ABSENT if report.replayed_steps is None else str(report.replayed_steps),
        ABSENT if report.outcome is None else _diagnosis(report.outcome),
        {None: ABSENT, True: "yes", False: "NO"}[report.diagnosis_correct],
    ]


def report_sentence(report: FaultReport) -> str:
    """One line, printed as soon as the effect is known."""
    if not report.recovered:
        return f"did not recover: {report.note}"
    if report.fault == SERVER and not report.downtime:
        parts = ["training was not interrupted"]
    else:
        after = "" if report.downtime is None else f" after {report.downtime:.1f} s"
        parts = [f"recovered{after}, attempt {report.attempt_after}"]
    if report.replayed_steps is not None:
        parts.append(f"{formatting.number_of(report.replayed_steps, 'step')} replayed")
    if report.outcome is not None:
        wrong = "" if report.diagnosis_correct else ", which is WRONG"
        parts.append(f"diagnosed as {_diagnosis(report.outcome)}{wrong}")
    return formatting.join([*parts, report.note])


def _diagnosis(outcome: Outcome) -> str:
    rank = "" if outcome.get("rank") is None else f", rank {outcome['rank']}"
    return f"{outcome['class']}{rank}"


def all_recovered(reports: Sequence[FaultReport], planned: int) -> bool:
    return len(reports) == planned and all(report.recovered for report in reports)


# --- injecting them

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
            return replace(report, note=sanitize_line(f"the job is {after.job['state']}: {status}"))
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
