"""Experiments: sets of jobs that differ in some parameters, and a table of their results."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from rekindle.contract.run_dir.attempt_history import AttemptSummary
from rekindle.contract.states import TERMINAL, JobIntent, JobState
from rekindle_service.api.auth import IdentityDep, require_access
from rekindle_service.api.dependencies import (
    AppState,
    AppStateDep,
    ChosenMetrics,
    IdempotencyKeyDep,
    ReadableBy,
    resolve_experiment,
    submitted_by,
)
from rekindle_service.api.pagination import PageParamsDep, RowPageParamsDep, paginate
from rekindle_service.api.problems import ApiError
from rekindle_service.api.request_conversion import keyed, plan_experiment
from rekindle_service.api.worker_pools import SUBMISSIONS
from rekindle_service.config.home import Home, is_job_id
from rekindle_service.experiments import built_in
from rekindle_service.experiments.comparison import (
    BestResult,
    ComparisonRow,
    MeasureColumn,
    best_of,
    best_result,
    compare,
    conclusion,
    default_measures,
    parse_goal,
)
from rekindle_service.experiments.experiment_records import remove_record
from rekindle_service.experiments.experiment_submitter import known_experiment, submit_jobs
from rekindle_service.experiments.trials import MAX_JOBS, Trial, count, job_request, submit_command
from rekindle_service.jobs import actions
from rekindle_service.jobs.time_breakdown import occupied_seconds
from rekindle_service.run_readers.metric_series import Series, downsample, read_run_series
from rekindle_service.schemas.experiment_json import (
    BuiltIn,
    CurvePublic,
    ExperimentCreate,
    ExperimentPublic,
    ExperimentSummary,
    TrialPublic,
)
from rekindle_service.schemas.fields import Page
from rekindle_service.store.tables import Experiment, Job

router = APIRouter(tags=["experiments"])

_MAX_LOGGED = 1000


def find_experiment(
    state: AppStateDep, request: Request, experiment_id: Annotated[str, Path(description="Id of the experiment")]
) -> Experiment:
    """The experiment of this id. Raises ApiError: 404 where it must not be read, 403 where not changed."""
    found = state.store.experiments.get(experiment_id) if is_job_id(experiment_id) else None
    detail = f"there is no experiment {experiment_id[:64]!r}; GET /api/v1/experiments lists all experiments"
    unknown = ApiError(404, "unknown-experiment", detail)
    if found is None:
        raise unknown
    require_access(state.access.permissions, request, found.owner, f"experiment {found.id}", unknown)
    return found


ExperimentDep = Annotated[Experiment, Depends(find_experiment)]


@router.post("/experiments", status_code=201)
@SUBMISSIONS.route
def submit_experiment(
    state: AppStateDep,
    identity: IdentityDep,
    readable_by: ReadableBy,
    body: ExperimentCreate,
    response: Response,
    idempotency_key: IdempotencyKeyDep,
) -> ExperimentPublic:
    """Submit jobs that differ in some parameters: all of them, or none."""
    key = keyed(idempotency_key, body)
    experiment = known_experiment(state.store, key)
    if experiment is None:
        planned, trials = plan_experiment(body, state.machine)
        planned.owner = identity.person
        submitter = submitted_by(state, identity, readable_by)
        owned = [(trial, replace(each, **submitter)) for trial, each in trials]
        experiment = submit_jobs(state.submitter, planned, owned, key)
        state.wake()
    response.headers["Location"] = f"/api/v1/experiments/{experiment.id}"
    return _public(state, experiment)


@router.get("/experiments")
def list_experiments(
    state: AppStateDep,
    params: RowPageParamsDep,
    readable_by: ReadableBy,
    name: Annotated[str | None, Query(max_length=200, description="Exact name")] = None,
) -> Page[ExperimentSummary]:
    """List experiments, latest first, without their results."""
    store = state.store.experiments
    page = params.page(store.page(params.limit + 1, before=params.cursor, name=name, readable_by=readable_by))
    states = store.states([experiment.id for experiment in page.items])
    return page.map(lambda experiment: experiment_summary(experiment, states[experiment.id]))


@router.get("/experiments/builtin")
def list_builtin_experiments(params: PageParamsDep) -> Page[BuiltIn]:
    """List the built-in experiments with their definitions, which can be submitted as they are."""
    variants = [(name, size) for name in built_in.names() for size in built_in.SIZES]
    return paginate([_built_in(name, size) for name, size in variants], params)


def _built_in(name: str, size: str) -> BuiltIn:
    definition = built_in.definition(name, size)
    request = ExperimentCreate.model_validate(definition)
    jobs = count(request.matrix or [], request.repeats)
    return BuiltIn(name=name, size=size, title=request.title, jobs=jobs, definition=definition)


@router.get("/experiments/resolve")
def find_named_experiment(
    state: AppStateDep,
    readable_by: ReadableBy,
    ref: Annotated[str, Query(max_length=500, description="Id, number, name, or the first characters of an id")],
) -> ExperimentSummary:
    """Find an experiment by id, number (`12`, `#12`), name (the latest of it) or 4 first characters of its id."""
    found = resolve_experiment(state.store, ref, readable_by)
    return experiment_summary(found, state.store.experiments.states([found.id])[found.id])


@router.get("/experiments/{experiment_id}")
def read_experiment(state: AppStateDep, experiment: ExperimentDep) -> ExperimentPublic:
    """Get an experiment with its jobs and the table of their current results."""
    return _public(state, experiment)


@router.get("/experiments/{experiment_id}/best")
def read_best_result(state: AppStateDep, experiment: ExperimentDep) -> BestResult:
    """Get the best result of an experiment and the range of all its results; empty for more than 200 jobs."""
    store = state.store.experiments
    if sum(store.states([experiment.id])[experiment.id].values()) > MAX_JOBS:  # reading all of them would take seconds
        return BestResult()
    table = _table(experiment, store.jobs(experiment.id), state.home)
    return best_result(table.rows, table.measures)


@router.get("/experiments/{experiment_id}/curves")
def list_curves(
    state: AppStateDep,
    experiment: ExperimentDep,
    params: PageParamsDep,
    name: ChosenMetrics = None,
    max_points: Annotated[int, Query(ge=1, le=2000, description="Maximum number of points of a curve")] = 2000,
) -> Page[CurvePublic]:
    """List the metrics of all jobs of an experiment over their steps, each downsampled to `max_points`."""
    curves = [
        CurvePublic(job=job.id, name=metric, points=downsample(points, max_points))
        for job in state.store.experiments.jobs(experiment.id)
        for metric, points in read_run_series(state.home.run_dir(job.id)).items()
        if name is None or metric in name
    ]
    return paginate(curves, params)


@router.post("/experiments/{experiment_id}/cancel", status_code=202)
def cancel_experiment(state: AppStateDep, experiment: ExperimentDep) -> ExperimentPublic:
    """Cancel all unfinished jobs of an experiment."""
    active = [job.id for job in state.store.experiments.jobs(experiment.id) if job.state not in TERMINAL]
    if not active:
        detail = f"all jobs of {_named(experiment)} have ended, so it cannot be cancelled"
        raise ApiError(409, "wrong-state", detail)
    actions.cancel_all(state.store, active[::-1])  # the last one first, so that none starts on the slots of another
    state.wake()
    return _public(state, experiment)


@router.post("/experiments/{experiment_id}/resume", status_code=202)
def resume_experiment(state: AppStateDep, experiment: ExperimentDep) -> ExperimentPublic:
    """Resume all failed jobs of an experiment, each from its latest snapshot if it has one."""
    failed = [job.id for job in state.store.experiments.jobs(experiment.id) if job.state is JobState.FAILED]
    if not failed:
        detail = f"no job of {_named(experiment)} has failed, so there is nothing to resume"
        raise ApiError(409, "wrong-state", detail)
    actions.resume_all(state.store, failed)
    state.wake()
    return _public(state, experiment)


@router.delete("/experiments/{experiment_id}", status_code=204)
def delete_experiment(state: AppStateDep, experiment: ExperimentDep) -> None:
    """Delete an experiment with all its jobs and their files; all of them must have ended."""
    if not state.store.experiments.delete(experiment.id):
        detail = f"{_named(experiment)} has jobs that have not ended; cancel it first"
        raise ApiError(409, "wrong-state", detail)
    remove_record(state.home, experiment.id)


def _named(experiment: Experiment) -> str:
    return f'experiment "{experiment.name}" (#{experiment.number})'


def experiment_summary(experiment: Experiment, states: Mapping[JobState, int]) -> ExperimentSummary:
    """An experiment without its results. ``states``: how many of its jobs are in which."""
    return ExperimentSummary(
        **experiment.model_dump(include={"id", "number", "name", "owner", "title", "command", "created_at"}),
        over=all(state in TERMINAL for state in states),
        jobs=sum(states.values()),
        states={state.value: count for state, count in states.items()},
    )


class _Table(NamedTuple):
    """The current results of an experiment; ``values`` has a number for each job and measure."""

    series: list[Series]
    measures: list[MeasureColumn]
    values: list[list[float | None]]
    rows: list[ComparisonRow]


def _table(experiment: Experiment, jobs: Sequence[Job], home: Home) -> _Table:
    """The table with the latest values of running jobs."""
    many = len(jobs) > MAX_JOBS  # an array, of which those that have not started have no files to be read
    series = [{} if many and not job.attempt else read_run_series(home.run_dir(job.id)) for job in jobs]
    measures = _measures(experiment) or default_measures(series)
    if goal := experiment.definition.get("goal"):
        column = MeasureColumn(parse_goal(goal)[0], goal=parse_goal(goal)[1])
        measures = [column, *(each for each in measures if (each.metric, each.take) != (column.metric, "last"))]
    values = [
        [measure.of([point.value for point in each.get(measure.metric, [])]) for measure in measures] for each in series
    ]
    trials = [Trial(job.trial["parameters"], job.trial["repeat"]) for job in jobs]
    return _Table(series, measures, values, compare(trials, values, measures))


def _measures(experiment: Experiment) -> list[MeasureColumn]:
    return [MeasureColumn(**each) for each in experiment.definition.get("measure", [])]


def _public(state: AppState, experiment: Experiment) -> ExperimentPublic:
    store = state.store.experiments
    jobs, attempts = store.jobs(experiment.id), store.attempts(experiment.id)
    series, measures, values, rows = _table(experiment, jobs, state.home)
    logged = list(dict.fromkeys(name for each in series for name in each))[:_MAX_LOGGED]
    result = best_result(rows, measures)
    return ExperimentPublic.model_validate(
        {
            **dict(experiment_summary(experiment, Counter(job.state for job in jobs))),
            "definition": experiment.definition,
            "machine": experiment.machine,
            "notes": [
                *_lack_of_metrics(experiment, jobs, logged),
                *_conclusions(experiment, rows, measures),
                *experiment.notes,
            ],
            "parameters": list(dict.fromkeys(key for job in jobs for key in job.trial["parameters"])),
            "measures": [measure.heading for measure in measures],
            "metrics": [measure.metric for measure in measures],
            "goals": [measure.direction for measure in measures],
            "best": best_of(rows, measures),
            "logged": logged,
            "result": result,
            "best_command": _best_command(experiment, result),
            "rows": rows,
            "trials": [
                _trial_public(job, attempts.get(job.id, []), each) for job, each in zip(jobs, values, strict=True)
            ],
        }
    )


def _lack_of_metrics(experiment: Experiment, jobs: Sequence[Job], logged: Sequence[str]) -> list[str]:
    """Why the table has no values though a trial has ended, and what to do."""
    goal = experiment.definition.get("goal")
    wanted = [parse_goal(goal)[0]] if goal else [each.metric for each in _measures(experiment)]
    if (set(wanted) & set(logged) if wanted else logged) or not any(job.state in TERMINAL for job in jobs):
        return []
    if logged:
        return [f"No trial has {' or '.join(wanted)}. Choose one of its metrics: {', '.join(logged[:12])}."]
    failed = [job for job in jobs if job.state is JobState.FAILED]
    if len(failed) == len(jobs):
        return [f"All trials failed before they had a metric. See why: rekindle show {failed[0].number}"]
    name = wanted[0] if wanted else "loss"
    added = f'print("{name}", {name})' if name.isidentifier() else f'print("{name}", value)'
    return [f"No trial has reported or printed a metric. Add a line to the script: {added}, or rekindle.report(…)."]


def _best_command(experiment: Experiment, result: BestResult) -> str | None:
    """The command for the best row; an array has none, since its jobs differ in a variable."""
    request = experiment.definition
    if result.parameters is None or request.get("array"):
        return None
    seed_option = request.get("seed_option")
    trial = Trial(result.parameters, 0)
    job = job_request(request["base"], request["args"], trial, name=experiment.name, seed_option=seed_option)
    return submit_command({**job, "name": None})


def _conclusions(experiment: Experiment, rows: Sequence[ComparisonRow], measures: Sequence[MeasureColumn]) -> list[str]:
    """What the results show, and what others have measured, in sentences."""
    declared = experiment.definition.get("conclude", {}).items()
    found = [conclusion(rows, measures, subject, heading) for subject, heading in declared]
    return [*filter(None, found), *experiment.definition.get("reference", [])]


def _trial_public(job: Job, attempts: Sequence[AttemptSummary], values: list[float | None]) -> TrialPublic:
    seconds = occupied_seconds(job, attempts, time.time())
    columns = job.model_dump(include={"number", "name", "state", "intent", "restarts", "outcome"})
    pruned = job.trial.get("pruned") if job.intent in (JobIntent.DRAIN, JobIntent.HOLD) else None
    own = {"job": job.id, "seconds": seconds, "values": values, "pruned": pruned}
    return TrialPublic.model_validate({**columns, **job.trial, **own})
