"""How often to save where nobody says: the rule behind ``SnapshotPolicy(auto=True)``, and its only numbers.

A snapshot every T seconds costs the share C/T of the training, and a failure costs T/2 seconds of it on average, once
every M seconds. The sum is least at T = sqrt(2·C·M): Young's rule, good as long as C is far below M. C is measured
(``SaveCosts``); M comes from the job's own failures. Two bounds go before it, see ``interval``.
"""

import math

from rekindle.contract.failure_stats import FailureStats
from rekindle.training.save_costs import SaveCosts

SHARE = 0.01
"""Of the training time, what snapshots may cost at most."""
LONGEST = 300.0
"""Seconds between two snapshots, where ``SHARE`` allows it."""
FIRST = 5.0
"""Seconds to the first snapshot of an attempt: nothing is measured before it."""

_WRITING_SHARE = 0.5  # of any time: on a CPU, writing takes processor time from the ranks
_PRIOR = 4 * 3600.0  # seconds: one failure in so many is believed of a job that nothing is known of


def time_between_failures(past: FailureStats, running: float) -> float:
    """M in seconds; ``running`` is how long this attempt has gone well.

    The job's own time and failures, and those of the prior: so it begins with the prior, and soon forgets it.
    """
    return (past.seconds + running + _PRIOR) / (past.count + 1)


def least_interval(cost: float | None, writing: float) -> float:
    """Seconds between two snapshots below which they would cost more than they may; ``cost`` None is not known yet."""
    return max((cost or 0.0) / SHARE, writing / _WRITING_SHARE)


def interval(cost: float | None, writing: float, between_failures: float) -> float:
    """Seconds from one snapshot to the next: Young's, at most ``LONGEST``, and never below ``least_interval``."""
    if cost is None:
        return FIRST
    return max(min(math.sqrt(2 * cost * between_failures), LONGEST), least_interval(cost, writing))


def describe(costs: SaveCosts, between_failures: float) -> str:
    """For people: ``every 42 steps or at the end of an epoch (auto: 21 ms each, one failure in 4.0 h)``."""
    if costs.cost is None:
        return f"after {FIRST:.0f} s (auto: to see what one costs)"
    seconds = interval(costs.cost, costs.writing, between_failures)
    steps = seconds / costs.step if costs.step else 0.0
    often = f"every {steps:.0f} steps" if steps >= 1.5 else f"every {seconds:.1f} s"
    hours = between_failures / 3600
    expected = f"{hours:.1f} h" if hours >= 1 else f"{between_failures / 60:.0f} min"
    return f"{often} or at the end of an epoch (auto: {costs.cost * 1e3:.0f} ms each, one failure in {expected})"
