"""How much of a job's time on its slots went into steps that count."""

from collections.abc import Sequence
from itertools import zip_longest

from rekindle_service.rows import Attempt


def goodput(attempts: Sequence[Attempt], now: float) -> float | None:
    """Useful time over time on slots, 0 to 1; None before the first attempt.

    Time on slots: from the first attempt of each run (times sent off from the queue) to the end of its last one, so
    waiting between attempts counts against the job and waiting in the queue does not. Useful: the time that all ranks
    of an attempt ran, less the share of its steps that the next attempt had to repeat, as far as steps were reported.
    ``attempts`` ascend by number; one without an end lasts until ``now`` (seconds since the epoch).
    """
    useful = occupied = 0.0
    for run in {attempt.run for attempt in attempts}:
        own = [attempt for attempt in attempts if attempt.run == run]
        occupied += max(0.0, _end(own[-1], now) - own[0].started_at)
    for attempt, following in zip_longest(attempts, attempts[1:]):
        if attempt.ranks_running_at is not None:
            useful += max(0.0, _end(attempt, now) - attempt.ranks_running_at) * _kept_share(attempt, following)
    return min(1.0, useful / occupied) if occupied > 0 else None


def _end(attempt: Attempt, now: float) -> float:
    return now if attempt.ended_at is None else attempt.ended_at


def _kept_share(attempt: Attempt, following: Attempt | None) -> float:
    """The share of this attempt's steps that the following one did not repeat; 1 where nobody can tell."""
    if following is None or attempt.last_step is None or following.ranks_running_at is None:
        return 1.0
    first = attempt.resumed_from_step or 0
    done = attempt.last_step - first
    kept = (following.resumed_from_step or 0) - first
    return min(1.0, max(0.0, kept / done)) if done > 0 else 1.0
