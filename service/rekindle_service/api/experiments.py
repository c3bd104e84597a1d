"""Experiments: sets of jobs whose results are put side by side."""

import time
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from rekindle.contract.states import TERMINAL
from rekindle_service.api.experiment_request import plan_of
from rekindle_service.api.experiment_schemas import (
    BuiltIn,
    CurvePublic,
    ExperimentCreate,
    ExperimentPublic,
    ExperimentSummary,
)
from rekindle_service.api.experiment_view import experiment_public, summary
from rekindle_service.api.jobs import Cursor, IdempotencyKey, Limit
from rekindle_service.api.pieces import WantedPiece
from rekindle_service.api.problems import ProblemError
from rekindle_service.api.schemas import Page
from rekindle_service.api.services import Services, Serving
from rekindle_service.config.home import is_job_id, new_job_id
from rekindle_service.experiments import built_in
from rekindle_service.experiments.matrix import count
from rekindle_service.experiments.submitter import ExperimentSubmitter
from rekindle_service.jobs import actions
from rekindle_service.machine.hardware import describe
from rekindle_service.run_readers.metrics import read_run_series
from rekindle_service.store.tables import Experiment

router = APIRouter(tags=["experiments"])


def find_experiment(
    services: Serving, experiment_id: Annotated[str, Path(description="Id of the experiment, as told at submit")]
) -> Experiment:
    """The experiment of this id. Raises ProblemError (404)."""
    found = services.store.experiments.get(experiment_id) if is_job_id(experiment_id) else None
    if found is None:
        detail = f"there is no experiment {experiment_id[:64]!r}; GET /api/v1/experiments lists those there are"
        raise ProblemError(404, "unknown-experiment", detail)
    return found


KnownExperiment = Annotated[Experiment, Depends(find_experiment)]


@router.post("/experiments", status_code=201)
def submit_experiment(
    services: Serving, body: ExperimentCreate, response: Response, idempotency_key: IdempotencyKey = None
) -> ExperimentPublic:
    """Take in a set of jobs that differ in some parameters: all of them, or none."""
    submitter = ExperimentSubmitter(services.submitter)
    experiment = submitter.known(idempotency_key)
    if experiment is None:
        plan = plan_of(body, services.machine)
        row = Experiment(
            id=new_job_id(),
            name=plan.name,
            title=plan.request.title,
            command=plan.command(),
            definition=plan.definition(),
            machine=describe(services.machine),
            notes=plan.notes,
            created_at=time.time(),
        )
        experiment = submitter.submit(
            row, plan.trials, sequential=plan.request.sequential, idempotency_key=idempotency_key
        )
        services.wake()
    response.headers["Location"] = f"/api/v1/experiments/{experiment.id}"
    return _public(services, experiment)


@router.get("/experiments")
def list_experiments(
    services: Serving,
    name: Annotated[str | None, Query(max_length=200, description="Exactly this name")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[ExperimentSummary]:
    """Experiments, newest first, without their tables."""
    store = services.store.experiments
    found = store.page(limit + 1, before=cursor, name=name)
    items = [summary(each, store.jobs(each.id)) for each in found[:limit]]
    return Page(items=items, next=str(items[-1].number) if len(found) > limit else None)


@router.get("/experiments/builtin")
def list_builtin_experiments(piece: WantedPiece) -> Page[BuiltIn]:
    """The experiments that come with rekindle, each as one would send it oneself."""
    items = []
    for name in built_in.names():
        for size in built_in.SIZES:
            definition = built_in.definition(name, size)
            request = ExperimentCreate.model_validate(definition)
            jobs = count(request.matrix or [], request.repeats)
            items.append(BuiltIn(name=name, size=size, title=request.title, jobs=jobs, definition=definition))
    items, following = piece.of(items)
    return Page(items=items, next=following)


@router.get("/experiments/{experiment_id}")
def read_experiment(services: Serving, experiment: KnownExperiment) -> ExperimentPublic:
    """An experiment with its jobs and the table of what they have measured by now."""
    return _public(services, experiment)


@router.get("/experiments/{experiment_id}/curves")
def list_curves(
    services: Serving,
    experiment: KnownExperiment,
    piece: WantedPiece,
    name: Annotated[str | None, Query(max_length=200, description="Only this metric")] = None,
) -> Page[CurvePublic]:
    """Every metric of every job over its steps, to be laid over each other."""
    curves = []
    for job in services.store.experiments.jobs(experiment.id):
        for metric, points in read_run_series(services.home.run_dir(job.id)).items():
            if name in (None, metric):
                curves.append(CurvePublic(job=job.id, name=metric, points=points))
    curves, following = piece.of(curves)
    return Page(items=curves, next=following)


@router.post("/experiments/{experiment_id}/cancel", status_code=202)
def cancel_experiment(services: Serving, experiment: KnownExperiment) -> ExperimentPublic:
    """Stop all its jobs that are not over."""
    jobs = services.store.experiments.jobs(experiment.id)
    if all(job.state in TERMINAL for job in jobs):
        raise ProblemError(409, "wrong-state", f"experiment {experiment.id} is over, so it cannot be cancelled")
    for job in reversed(jobs):  # the last first, so that none of them starts on the slots of one before
        actions.cancel(services.store, job.id)
    services.wake()
    return _public(services, experiment)


def _public(services: Services, experiment: Experiment) -> ExperimentPublic:
    return experiment_public(experiment, services.store.experiments.jobs(experiment.id), services.home)
