"""An experiment as the outside sees it: its jobs, the values that they have logged, and the table of them."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekindle.contract.states import TERMINAL
from rekindle_service.api.experiment_schemas import (
    ExperimentPublic,
    ExperimentSummary,
    RowPublic,
    TrialPublic,
)
from rekindle_service.api.schemas import speakable
from rekindle_service.config.home import Home
from rekindle_service.experiments.comparison import Measure, compare, default_measures
from rekindle_service.run_readers.metrics import Series, read_run_series
from rekindle_service.experiments.matrix import Trial, upgrade_definition
from rekindle_service.store.tables import Experiment, Job


@dataclass(frozen=True, slots=True)
class _Measured:
    """A job of an experiment with what it has logged, and one value for each measure."""

    job: Job
    trial: Trial
    values: list[float | None]


def summary(experiment: Experiment, jobs: Sequence[Job]) -> ExperimentSummary:
    return ExperimentSummary.model_validate(_summary(experiment, jobs))


def experiment_public(experiment: Experiment, jobs: Sequence[Job], home: Home) -> ExperimentPublic:
    """With a table of what is known by now: jobs that still run are in it with their newest values."""
    series = [read_run_series(home.run_dir(job.id)) for job in jobs]
    definition = upgrade_definition(experiment.definition)
    measures = [Measure(**each) for each in definition.get("measure", [])] or default_measures(series)
    measured = [_measured(job, each, measures) for job, each in zip(jobs, series, strict=True)]
    rows = compare([one.trial for one in measured], [one.values for one in measured], measures)
    parameters = dict.fromkeys(key for one in measured for key in one.trial.parameters)
    return ExperimentPublic.model_validate(
        {
            **_summary(experiment, jobs),
            "definition": speakable(definition),
            "machine": experiment.machine,
            "notes": experiment.notes,
            "parameters": list(parameters),
            "measures": [measure.heading for measure in measures],
            "rows": [RowPublic.model_validate(row) for row in rows],
            "trials": [_cell_public(one) for one in measured],
        }
    )


def _summary(experiment: Experiment, jobs: Sequence[Job]) -> dict[str, Any]:
    return {
        "id": experiment.id,
        "number": experiment.number,
        "name": experiment.name,
        "title": experiment.title,
        "command": experiment.command,
        "created_at": experiment.created_at,
        "over": all(job.state in TERMINAL for job in jobs),
        "jobs": len(jobs),
        "states": dict(Counter(job.state.value for job in jobs)),
    }


def _measured(job: Job, series: Series, measures: Sequence[Measure]) -> _Measured:
    values = [measure.of([point.value for point in series.get(measure.metric, [])]) for measure in measures]
    return _Measured(job, _cell(job.trial), values)


def _cell(told: Mapping[str, Any]) -> Trial:
    return Trial(told["parameters"], told["repeat"])


def _cell_public(one: _Measured) -> TrialPublic:
    job = one.job
    end = time.time() if job.ended_at is None else job.ended_at
    return TrialPublic(
        job=job.id,
        number=job.number,
        name=job.name,
        state=job.state,
        intent=job.intent,
        parameters=speakable(one.trial.parameters),
        repeat=one.trial.repeat,
        seconds=None if job.started_at is None else max(0.0, end - job.started_at),
        restarts=job.restarts,
        outcome=speakable(job.outcome),
        values=one.values,
    )
