"""What a keeper needs from the journal: where the keepers before it stopped, and how often the job failed."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.environment import FailureStats
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.processes import boot_id
from rekindle.contract.run_dir.attempt_history import AttemptHistory, AttemptInfo
from rekindle.keeper.buffered_journal import journal_time
from rekindle.keeper.diagnosis import lost_nodes_message

_NO_FAILURE = {OutcomeClass.SUCCESS, OutcomeClass.PREEMPTED, OutcomeClass.CANCELLED}
_END_NOT_SEEN = {OutcomeClass.KEEPER_LOST, OutcomeClass.HOST_LOST}


@dataclass(slots=True)
class History:
    """The attempts before the first one of this keeper."""

    last: AttemptInfo  # of any run; its number is 0 before the first one
    ended: list[AttemptInfo]  # of the current run only: a resume by the user begins a new budget
    last_keeper_boot: str | None
    run_started_at: float | None  # seconds since the epoch: first attempt of this run
    unjudged: bool  # the journal has the end of the last attempt, but not what follows from it
    job_ended: bool

    @property
    def open_attempt(self) -> AttemptInfo | None:
        """The attempt that has started, and whose keeper died before it could write the end."""
        return self.last if self.last.ended_at is None else None

    @property
    def host_lost(self) -> bool:
        """True where the machine has been restarted since the last keeper."""
        return self.last_keeper_boot != boot_id()

    def lost_outcome(self, excluded: Mapping[str, str]) -> Outcome:
        """How the open attempt ended: nobody saw it, but the boot id shows whether the whole machine went down.

        On a cluster the next coordinator may be on another machine: that shows nothing of the one before. Unless the
        server knows more: see ``RunIntent.excluded``.
        """
        if bad := {host: excluded[host] for host in self.last.hosts if host in excluded}:
            return Outcome(OutcomeClass.HOST_LOST, lost_nodes_message(bad))
        if self.last.hosts:
            klass = OutcomeClass.HOST_LOST if self.host_lost else OutcomeClass.KEEPER_LOST
            nodes = ", ".join(self.last.hosts)
            message = f"The coordinator ended without a record, alone or with its node; the ranks ran on {nodes}."
            return Outcome(klass, message)
        if self.host_lost:
            return Outcome(OutcomeClass.HOST_LOST, "The machine went down under the job.")
        return Outcome(OutcomeClass.KEEPER_LOST, "The job's keeper was killed; its ranks ended with it.")


def read_history(journal: Path, run: int) -> History:
    """Read the journal for run number ``run``; earlier runs only count for the attempt numbers."""
    attempts = AttemptHistory.read(journal)
    this_run, last = attempts.runs[run], attempts.latest or AttemptInfo(0, ended_at=0.0)
    undecided = last in this_run.ended and last.next_try_at is None and this_run.end is None
    return History(
        last=last,
        ended=[each for each in this_run.ended if each.outcome is not None],
        last_keeper_boot=attempts.boot_id,
        run_started_at=this_run.started_at,
        unjudged=undecided and last.outcome is not None,
        job_ended=this_run.end is not None,
    )


def seconds_running(attempt: AttemptInfo) -> float:
    """Seconds for which the ranks of an attempt whose end was not seen have run until now."""
    return 0.0 if attempt.ranks_running_at is None else max(journal_time() - attempt.ranks_running_at, 0.0)


def failure_stats(journal: Path) -> FailureStats:
    """Count the failures of all runs, but only attempts whose ranks ran: a launch that fails loses no training.

    The time of an attempt whose end nobody saw is excluded: it is known only when the next keeper came.
    """
    count, seconds = 0, 0.0
    for attempt in AttemptHistory.read(journal).attempts.values():
        if attempt.ranks_running_at is not None and attempt.ended_at is not None and attempt.outcome is not None:
            count += attempt.outcome.klass not in _NO_FAILURE
            seen = attempt.outcome.klass not in _END_NOT_SEEN
            seconds += max(attempt.ended_at - attempt.ranks_running_at, 0.0) if seen else 0.0
    return FailureStats(count, seconds)
