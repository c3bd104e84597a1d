"""The history of a job: its attempts, its events, what its time was spent on, and what its ranks did."""

import time
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from rekindle_service.api.dependencies import AppStateDep, JobDep, RunDirDep
from rekindle_service.api.pagination import PageParamsDep, paginate
from rekindle_service.api.problem_details import invalid_field
from rekindle_service.api.serializers import attempts_public, with_arguments
from rekindle_service.jobs.time_breakdown import goodput, time_breakdown, totals
from rekindle_service.run_readers.lanes import Lanes, read_lanes
from rekindle_service.run_readers.ranks import read_attempts, read_rank_zero_status
from rekindle_service.schemas.attempt_json import AttemptPublic, EventPublic, IntervalPublic, TimeBreakdown
from rekindle_service.schemas.fields import Page

router = APIRouter(tags=["attempts"])
_SHORTEST = 0.001  # seconds that lanes have where a job has ended before its submission by a clock that was set back


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
    """Break down the time of a job: queued, waiting (back-off), starting, training, saving, replayed, stalled."""
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


@router.get("/jobs/{job_id}/lanes")
def list_lanes(
    job: JobDep,
    run_dir: RunDirDep,
    begin: Annotated[
        float | None, Query(alias="from", ge=0, le=1e11, description="Seconds since the epoch; default: the submission")
    ] = None,
    end: Annotated[
        float | None, Query(alias="to", ge=0, le=1e11, description="Seconds since the epoch; default: the end, or now")
    ] = None,
    points: Annotated[int, Query(ge=1, le=2000, description="Maximum number of points of each rank")] = 240,
) -> Lanes:
    """Get what every rank of every attempt did over time: phase, step, waiting for other ranks, use of its device.

    Times are in seconds since the epoch. The keeper takes a sample every 5 seconds, of a long attempt fewer of those
    that are older. With many ranks each has fewer points.
    """
    begin = job.created_at if begin is None else begin
    if end is None:
        latest = time.time() if job.ended_at is None else job.ended_at
        end = max(latest, job.created_at + _SHORTEST)
    if begin >= end:
        detail = f"the range from {begin:.3f} to {end:.3f} has no time in it"
        raise invalid_field("to", f"must be later than `from`, which is {begin:.3f}", end, detail)
    attempts = [*read_attempts(run_dir).values()]
    return read_lanes(run_dir, attempts, job.spec.devices_per_rank, begin, end, points)
