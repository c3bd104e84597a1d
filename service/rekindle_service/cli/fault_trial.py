"""One job and the faults that strike it: waits for the moment, strikes, and watches until the job is back."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from rekindle.contract.chaos import Fault
from rekindle_service.cli import wording
from rekindle_service.cli.exit_codes import fate
from rekindle_service.cli.fault_cost import Cost, named_rightly, steps_repeated
from rekindle_service.cli.fault_plan import SERVER, Strike
from rekindle_service.cli.patience import Patience
from rekindle_service.client import Client, Injection, Job, ProblemError, Rank
from rekindle_service.client import Fault as Injected

_POLL = 0.1  # seconds
_NOTICE = 15.0  # seconds in which a keeper takes notice of a fault
_RIPENING = 15.0  # seconds that an attempt is given to take a snapshot of its own
_SILENCE = 5.0  # seconds after which a script that reports nothing is taken for one that never will


@dataclass(frozen=True, slots=True)
class Sight:
    """A job and the ranks of its newest attempt at one moment."""

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
    def running(self) -> bool:
        every = bool(self.ranks) and all(rank["state"] == "running" for rank in self.ranks)
        return self.job["state"] == "running" and self.job["intent"] == "run" and every

    def trains(self, stepping: bool) -> bool:
        """Whether the attempt has finished a step of its own; without steps, whether its ranks run."""
        return self.running if not stepping else self.job["state"] == "running" and (self.step or 0) > self.began_at

    def is_ripe(self, ran: float) -> bool:
        """Whether a failure now, after ``ran`` seconds, would count as one after progress, as far as can be told."""
        if self.step is None and not any(rank["phase"] for rank in self.ranks):
            return ran >= _SILENCE
        return ran >= _RIPENING or any((rank["snapshot_step"] or 0) > self.began_at for rank in self.ranks)

    @property
    def began_at(self) -> int:
        """The step that the attempt went on from. The ranks know it a moment before the attempt's row does."""
        return max((rank["resumed_from_step"] or 0 for rank in self.ranks), default=0)


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that the keeper has injected."""

    injection: Injection
    snapshot: int | None  # step of the damaged one
    at: float  # seconds of CLOCK_MONOTONIC


class JobOverError(Exception):
    """Nothing more can strike the job."""

    def __init__(self, job: Job) -> None:
        super().__init__(job["state"])
        self.job = job


class NotInjectedError(Exception):
    """The fault did not happen."""


class Trial:
    """``replace_server`` kills this machine's server and brings up another."""

    def __init__(self, client: Client, job_id: str, patience: Patience, replace_server: Callable[[], object]) -> None:
        self._client, self._job_id, self._patiently = client, job_id, patience
        self._replace_server = replace_server

    def await_moment(self, pause: float = 0.0, at_step: int | None = None, *, saved: bool = False) -> Sight:
        """Wait until the job has run for ``pause`` seconds and has finished ``at_step``.

        ``saved``: and until it has something to lose, so that no fault is answered by giving up for want of progress.
        Raises JobOverError.
        """
        since: float | None = None
        while True:
            sight, now = self._look(), time.monotonic()
            if fate(sight.job) is not None:
                raise JobOverError(sight.job)
            since = (since or now) if sight.running else None
            ran = 0.0 if since is None else now - since
            due = ran >= pause and (sight.step or 0) >= (at_step or 0) and (not saved or sight.is_ripe(ran))
            if due and sight.running and sight.trains(sight.step is not None):
                return sight
            time.sleep(_POLL)

    def strike(self, strike: Strike, before: Sight) -> Cost:
        """Do the damage and watch until the job trains again, or never will."""
        if strike.fault == SERVER:
            return self._strike_server(before)
        try:
            struck = self._injected(strike)
        except NotInjectedError as error:
            return Cost(strike.fault, strike.rank, False, before.attempt, remark=f"not injected: {error}")
        after = self._await_return(before.step is not None, than=struck.injection["attempt"])
        return self._cost(strike.fault, struck, after, time.monotonic() - struck.at)

    def _injected(self, strike: Strike) -> Struck:
        """Inject; a damaged snapshot shows only when one is read, so a rank is killed right after it."""
        if strike.fault != Fault.CORRUPT_SNAPSHOT:
            return self._inject(strike.fault, strike.rank)
        damage = self._inject(strike.fault, None)
        return replace(self._inject(Fault.KILL, strike.rank), snapshot=damage.snapshot)

    def _inject(self, fault: str, rank: int | None) -> Struck:
        """Raises NotInjectedError when the server refuses or the keeper does not do it."""
        known, at = len(self._told_faults()), time.monotonic()
        try:
            injection = self._client.inject(self._job_id, fault, rank)
        except ProblemError as error:
            raise NotInjectedError(str(error)) from error
        deadline = time.monotonic() + _NOTICE
        while time.monotonic() < deadline:
            told = self._told_faults()
            if len(told) > known:
                return Struck(injection, told[-1]["snapshot"], at)
            time.sleep(_POLL)
        raise NotInjectedError(f"the job's keeper took no notice within {_NOTICE:g} s")

    def _told_faults(self) -> list[Injected]:
        attempts = self._patiently(lambda: self._client.attempts(self._job_id))
        return [fault for attempt in attempts for fault in attempt["faults"]]

    def _cost(self, fault: str, struck: Struck, after: Sight, seconds: float) -> Cost:
        before, rank = struck.injection["attempt"], struck.injection["rank"]
        cost = Cost(fault, rank, after.job["state"] in ("running", "succeeded"), before, after.attempt, struck.snapshot)
        attempts = {one["number"]: one for one in self._patiently(lambda: self._client.attempts(self._job_id))}
        if not cost.came_back:
            why = wording.situation(after.job)
            return replace(cost, outcome=attempts[before]["outcome"], remark=f"the job {after.job['state']}: {why}")
        if after.attempt == before:
            return replace(cost, remark="the job ended before it felt it")
        outcome = attempts[before]["outcome"]
        damaged = struck.snapshot is not None and struck.snapshot == after.began_at
        return replace(
            cost,
            came_back=not damaged,
            downtime=seconds,
            steps_repeated=steps_repeated(attempts[before], after.began_at),
            outcome=outcome,
            named_rightly=named_rightly(fault, rank, outcome),
            remark="it went on from the damaged snapshot" if damaged else "",
        )

    def _strike_server(self, before: Sight) -> Cost:
        """The ranks must not feel it: the job is back when they have finished a step since, in the same attempt."""
        begun = time.monotonic()
        self._replace_server()
        away = time.monotonic() - begun
        after = self._await_return(before.step is not None, than=before.attempt, since=before)
        cost = Cost(SERVER, None, after.job["state"] in ("running", "succeeded"), before.attempt, after.attempt)
        felt = after.attempt != before.attempt
        return replace(
            cost,
            downtime=time.monotonic() - begun if felt else 0.0,
            remark=f"no server for {away:.1f} s" + (", and the ranks were started anew" if felt else ""),
        )

    def _await_return(self, stepping: bool, *, than: int, since: Sight | None = None) -> Sight:
        """The job when a later attempt than ``than`` trains, or when nothing more will happen by itself.

        ``since``: also when the same attempt has gone beyond what was seen there.
        """
        while True:
            sight = self._look()
            later = sight.attempt > than and sight.trains(stepping)
            onward = since is not None and sight.attempt == than and _beyond(sight, since)
            if later or onward or fate(sight.job) is not None:
                return sight
            time.sleep(_POLL)

    def _look(self) -> Sight:
        job = self._patiently(lambda: self._client.job(self._job_id))
        if job["attempt"] == 0:
            return Sight(job, [])
        return Sight(job, self._patiently(lambda: self._client.ranks(self._job_id, job["attempt"])))


def _beyond(sight: Sight, since: Sight) -> bool:
    return sight.running and (since.step is None or (sight.step or 0) > since.step)
