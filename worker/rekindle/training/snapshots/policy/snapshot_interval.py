"""The interval of ``SnapshotPolicy(auto=True)``, and its only numbers: the rule of Young and Daly.

A snapshot every T seconds costs the share C/T of the training, and a failure costs T/2 seconds of it on average, once
every M seconds. The sum is least at T = sqrt(2·C·M): Young's rule, good as long as C is far below M. C is measured
(``SnapshotOverhead``); M, the mean time between failures, comes from the job's own. Two bounds take precedence, see
``interval``.
"""

import math

from rekindle.contract.failure_stats import FailureStats
from rekindle.training.snapshots.policy.snapshot_overhead import SnapshotOverhead

MAX_SHARE = 0.01
"""Of the training time that snapshots may cost."""
MAX_INTERVAL = 300.0
"""Seconds between two snapshots, where ``MAX_SHARE`` allows it."""
FIRST = 5.0
"""Seconds to the first snapshot of an attempt: nothing is measured before it."""

_MAX_WRITING_SHARE = 0.5  # of any time: on a CPU, writing takes processor time from the ranks
_PRIOR = 4 * 3600.0  # seconds: the assumed time between failures of a job that nothing is known of


def mean_time_between_failures(past: FailureStats, running: float) -> float:
    """M in seconds; ``running`` is how long this attempt has run without a failure.

    The job's own time and failures, and those of the prior: so it begins with the prior, and soon forgets it.
    """
    return (past.seconds + running + _PRIOR) / (past.count + 1)


def min_interval(cost: float | None, writing: float) -> float:
    """Seconds between two snapshots below which they would cost too much; ``cost`` None is not known yet."""
    return max((cost or 0.0) / MAX_SHARE, writing / _MAX_WRITING_SHARE)


def interval(cost: float | None, writing: float, mtbf: float) -> float:
    """Seconds from one snapshot to the next: Young's, at most ``MAX_INTERVAL``, and never below ``min_interval``."""
    if cost is None:
        return FIRST
    return max(min(math.sqrt(2 * cost * mtbf), MAX_INTERVAL), min_interval(cost, writing))


def describe(overhead: SnapshotOverhead, mtbf: float) -> str:
    """For people: ``every 42 steps or at the end of an epoch (auto: 21 ms each, one failure in 4.0 h)``."""
    if overhead.cost is None:
        return f"after {FIRST:.0f} s (auto: to measure the cost of one)"
    seconds = interval(overhead.cost, overhead.writing, mtbf)
    steps = seconds / overhead.step if overhead.step else 0.0
    often = f"every {steps:.0f} steps" if steps >= 1.5 else f"every {seconds:.1f} s"
    expected = f"{mtbf / 3600:.1f} h" if mtbf >= 3600 else f"{mtbf / 60:.0f} min"
    return f"{often} or at the end of an epoch (auto: {overhead.cost * 1e3:.0f} ms each, one failure in {expected})"
