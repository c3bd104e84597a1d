"""The history of a job: its attempts, its events, and what its time was spent on."""

import time
from dataclasses import asdict

from fastapi import APIRouter

from rekindle_service.api.dependencies import AppStateDep, JobDep, RunDirDep
from rekindle_service.api.pagination import Page, PageParamsDep, paginate
from rekindle_service.api.schemas.jobs import AttemptPublic, EventPublic, IntervalPublic, TimeBreakdown
from rekindle_service.api.serializers import attempts_public, with_arguments
from rekindle_service.jobs.time_breakdown import goodput, time_breakdown, totals
from rekindle_service.run_readers.ranks import read_rank_zero_status

router = APIRouter(tags=["attempts"])


@router.get("/jobs/{job_id}/attempts")
def list_attempts(state: AppStateDep, job: JobDep, run_dir: RunDirDep, params: PageParamsDep) -> Page[AttemptPublic]:
    """List the attempts of a job, oldest first: each is one launch of torchrun."""
    page = paginate(attempts_public(state.store.attempts(job.id)), params, lambda attempt: attempt.number)
    return page.map(lambda attempt: with_arguments(attempt, job, run_dir))


@router.get("/jobs/{job_id}/events")
def list_events(state: AppStateDep, job: JobDep, params: PageParamsDep) -> Page[EventPublic]:
    """List the events in the history of a job, oldest first."""
    return paginate(state.store.events(job.id), params, lambda event: event.id).map(EventPublic.model_validate)


@router.get("/jobs/{job_id}/time")
def read_time_breakdown(state: AppStateDep, job: JobDep, run_dir: RunDirDep) -> TimeBreakdown:
    """Break down the time of a job: queued, waiting, starting, training, saving, replayed."""
    attempts = state.store.attempts(job.id)
    for running in [attempt for attempt in attempts if attempt.ended_at is None]:
        status = read_rank_zero_status(run_dir, running.number)
        running.saving_seconds = None if status is None else status.saving_seconds
    intervals = time_breakdown(job, attempts, time.time())
    return TimeBreakdown(
        goodput=goodput(intervals, attempts),
        seconds=totals(intervals),
        intervals=[IntervalPublic(**asdict(interval)) for interval in intervals],
    )
