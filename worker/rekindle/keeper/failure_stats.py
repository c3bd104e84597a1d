"""What the journal tells of a job's failures, over all its runs and keepers."""

from pathlib import Path

from rekindle.contract.failure_stats import FailureStats
from rekindle.contract.outcome import OutcomeClass
from rekindle.contract.run_dir.journal import RecordType, read_journal

_NO_FAILURE = {OutcomeClass.SUCCESS, OutcomeClass.PREEMPTED, OutcomeClass.CANCELLED}
_UNSEEN = {OutcomeClass.KEEPER_LOST, OutcomeClass.HOST_LOST}


def failure_stats(journal: Path) -> FailureStats:
    """Only attempts whose ranks ran count: a launch that fails loses no training.

    Of an end that nobody saw, the time is left out: it is known only when the next keeper came.
    """
    count, seconds, running_since = 0, 0.0, None
    for record in read_journal(journal):
        if record.type is RecordType.ATTEMPT_STARTED:
            running_since = None
        elif record.type is RecordType.RANKS_RUNNING:
            running_since = record.at
        elif record.type is RecordType.ATTEMPT_ENDED and running_since is not None:
            outcome = record.fields["outcome"]["class"]
            count += outcome not in _NO_FAILURE
            seconds += 0.0 if outcome in _UNSEEN else max(record.at - running_since, 0.0)
            running_since = None
    return FailureStats(count, seconds)
