"""Successive halving: trials of a sweep that lag at a ninth or a third of the training are drained.

The rule is that of ASHA (Li et al., https://arxiv.org/abs/1810.05934), a pure function of the rows and their metrics:
a server that was killed decides as the one before. optuna (5.0.0) is not used: its SuccessiveHalvingPruner keeps, in
attributes of its storage, the value that a trial had when it was asked about it, so its answer depends on when and in
which order it is asked, and its rungs are those of the first trial that is complete.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median_high
from typing import NamedTuple

import structlog

from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.experiments.comparison import Goal, parse_goal, significant
from rekindle_service.run_readers.metric_series import Point, read_run_series
from rekindle_service.store import Store
from rekindle_service.store.tables import Experiment, Job

_log = structlog.get_logger(__name__)

PRUNE_INTERVAL = 2.0  # seconds
_FACTOR = 3  # 1/3 of the trials at a rung continues, and the next rung is 3 times as far
_RUNGS = 2


class Lag(NamedTuple):
    """What a trial had at the rung where it lags, and what the best third had at worst; None: not finite."""

    step: int
    value: float | None
    bound: float


def lagging(curves: Mapping[str, Sequence[Point]], steps: int, goal: Goal) -> dict[str, Lag]:
    """The trials that are not among the best third of at least three at a rung. ``steps``: length of a training.

    A value that is not finite is worse than any other. Equal trials are equally good, so that none of them lags.
    """
    found: dict[str, Lag] = {}
    for rung in (math.ceil(steps / _FACTOR**power) for power in range(_RUNGS, 0, -1)):
        at_rung = {key: _value_at(curve, rung) for key, curve in curves.items() if curve and curve[-1].step >= rung}
        costs = {key: _cost(value, goal) for key, value in at_rung.items()}
        if len(costs) < _FACTOR:
            continue
        bound = sorted(costs.values())[math.ceil(len(costs) / _FACTOR) - 1]
        shown = bound if goal == "min" else -bound
        found |= {key: Lag(rung, at_rung[key], shown) for key in costs if costs[key] > bound and key not in found}
    return found


def _value_at(curve: Sequence[Point], step: int) -> float | None:
    """The latest value up to ``step``, else the first one."""
    return next((point for point in reversed(curve) if point.step <= step), curve[0]).value


def _cost(value: float | None, goal: Goal) -> float:
    return math.inf if value is None else value if goal == "min" else -value


def training_steps(jobs: Sequence[Job], curves: Mapping[str, Sequence[Point]]) -> int | None:
    """The length of a training in steps of its metrics: as announced, as the progress implies, or as it was done."""
    found = [_steps(job, curves[job.id][-1].step) for job in jobs if curves.get(job.id)]
    known = [each for each in found if each]
    return median_high(known) if known else None


def _steps(job: Job, last: int) -> int | None:
    if job.state is JobState.SUCCEEDED:
        return last
    return job.steps or (round(last / job.progress) if job.progress else None)


class SweepPruner:
    """Drains the lagging trials of the experiments that request it. All its state is in rows and run directories."""

    def __init__(self, store: Store, home: Home) -> None:
        self._store, self._home = store, home

    def prune(self) -> None:
        """Look at each experiment with a running trial once."""
        for experiment_id in {job.experiment_id for job in self._store.holding() if job.experiment_id}:
            experiment = self._store.experiments.get(experiment_id)
            if experiment is not None and experiment.definition.get("prune"):
                self._prune(experiment)

    def _prune(self, experiment: Experiment) -> None:
        """A failed or cancelled trial is no competitor, so that one continues which may succeed."""
        metric, goal = parse_goal(experiment.definition["goal"])
        jobs = self._store.experiments.jobs(experiment.id)
        jobs = [job for job in jobs if job.attempt and job.state not in (JobState.FAILED, JobState.CANCELLED)]
        curves = {job.id: read_run_series(self._home.run_dir(job.id)).get(metric, []) for job in jobs}
        steps = training_steps(jobs, curves)
        for job_id, lag in lagging(curves, steps, goal).items() if steps else ():
            reason = f"pruned at step {curves[job_id][-1].step}: {_sentence(metric, goal, lag)}"
            if self._store.experiments.prune(job_id, reason) is not None:
                _log.info("Pruned a trial", job=job_id, experiment=experiment.id, reason=reason)


def _sentence(metric: str, goal: Goal, lag: Lag) -> str:
    value = "not finite" if lag.value is None else significant(lag.value)
    sign = "≤" if goal == "min" else "≥"
    return f"{metric} {value} at step {lag.step}, the best third had {sign} {significant(lag.bound)}"
