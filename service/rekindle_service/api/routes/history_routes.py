"""The history of a job: its attempts, its events, what its time was spent on, what its ranks did, and what happened."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from rekindle.contract.outcome import Outcome
from rekindle.contract.run_dir.attempt_history import AttemptSummary, replayed_steps
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.placeholders import read_arguments
from rekindle_service.api.dependencies import AppStateDep, AttemptNumber, AttemptsDep, JobDep, ReadableBy, RunDirDep
from rekindle_service.api.pagination import PageParamsDep, paginate
from rekindle_service.api.problems import invalid_field
from rekindle_service.jobs.job_story import SameError, Story, read_story, start_reasons
from rekindle_service.jobs.step_times import StepTimes, read_step_times
from rekindle_service.jobs.time_breakdown import goodput, time_breakdown, totals
from rekindle_service.run_readers.lanes import Lanes, RankMeasure, read_lanes
from rekindle_service.run_readers.rank_rows import read_rank_zero_status
from rekindle_service.schemas.attempt_json import AttemptPublic, EventPublic, IntervalPublic, TimeBreakdown
from rekindle_service.schemas.fields import Page
from rekindle_service.store.tables import Job

router = APIRouter(tags=["attempts"])

_SHORTEST = 0.001  # seconds that lanes have where a job has ended before its submission by a clock that was set back


@router.get("/jobs/{job_id}/attempts")
def list_attempts(state: AppStateDep, job: JobDep, run_dir: RunDirDep, params: PageParamsDep) -> Page[AttemptPublic]:
    """List the attempts of a job, oldest first: each is one launch of torchrun."""
    rollbacks = [event.at for event in state.store.events(job.id) if event.kind == "rolled_back"]
    public = attempts_public(state.store.attempts(job.id), rollbacks)
    page = paginate(public, params, lambda attempt: attempt.number)
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


@router.get("/jobs/{job_id}/step-times")
def read_times_of_steps(
    job: JobDep, run_dir: RunDirDep, attempts: AttemptsDep, attempt: AttemptNumber = None
) -> StepTimes:
    """Break down the time of a step of an attempt, from the data loader to the optimizer, and say what limits it.

    Steps are sampled, a few per second. Scripts that do not step by an optimizer of torch, or that train in processes
    of their own, are not measured.
    """
    if attempt is None and job.attempt == 0:
        return StepTimes(None, None, "Not measured: the job has not started yet.")
    return read_step_times(job.spec, run_dir, attempts.find(attempt))


@router.get("/jobs/{job_id}/lanes")
def list_lanes(
    state: AppStateDep,
    job: JobDep,
    run_dir: RunDirDep,
    begin: Annotated[
        float | None, Query(alias="from", ge=0, le=1e11, description="Seconds since the epoch; default: the submission")
    ] = None,
    end: Annotated[
        float | None, Query(alias="to", ge=0, le=1e11, description="Seconds since the epoch; default: the end, or now")
    ] = None,
    points: Annotated[int, Query(ge=1, le=2000, description="Maximum number of points of each rank")] = 240,
    measure: Annotated[list[RankMeasure] | None, Query(description="Further measurements of each rank")] = None,
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
    attempts = state.store.detailed_attempts(job.id)
    return read_lanes(run_dir, attempts, job.spec.devices_per_rank, begin, end, points, measure or [])


@router.get("/jobs/{job_id}/story")
def read_job_story(
    state: AppStateDep,
    job: JobDep,
    run_dir: RunDirDep,
    known: AttemptsDep,
    readable_by: ReadableBy,
    attempt: AttemptNumber = None,
) -> Story:
    """Explain what happened to a job: the cause, the rank and the lines of code, and what to do next.

    By default of the job as it is now; with `attempt`, of that attempt.
    """
    known.chosen(attempt)

    def same_error(outcome: Outcome) -> list[SameError]:
        found = state.store.lists.failed_alike(job.id, outcome, readable_by=readable_by)
        return [SameError(each.id, each.number, each.name) for each in found]

    return read_story(job, state.store.attempts(job.id), run_dir, attempt, same_error)


def attempts_public(attempts: Sequence[AttemptSummary], rollbacks: Sequence[float] = ()) -> list[AttemptPublic]:
    """All attempts of a job: how many steps of one were replayed follows from those after it.

    ``rollbacks``: see ``start_reasons``.
    """
    replayed, starts = replayed_steps(attempts), start_reasons(attempts, rollbacks)
    return [
        AttemptPublic(
            **(asdict(attempt) | {"outcome": None if attempt.outcome is None else attempt.outcome.to_json()}),
            state="running" if attempt.ended_at is None else "ended",
            replayed_steps=replayed[attempt.number],
            start=starts[attempt.number],
            args=None,
        )
        for attempt in attempts
    ]


def with_arguments(attempt: AttemptPublic, job: Job, run_dir: RunDir) -> AttemptPublic:
    args = read_arguments(run_dir, attempt.number)
    return attempt if args in (None, job.spec.args) else attempt.model_copy(update={"args": args})
