"""The overview: what needs a person, what runs, what is next, what has ended."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query

from rekindle.contract.states import HOLDING_SLOTS, JobIntent
from rekindle_service.api.dependencies import AppState, AppStateDep, ReadableBy
from rekindle_service.api.schemas.overview import Overview, OverviewCounts, OverviewItem
from rekindle_service.api.serializers import experiment_summary, job_public
from rekindle_service.jobs.overview import reason
from rekindle_service.store.tables import Job

router = APIRouter(tags=["jobs"])


@router.get("/overview")
def read_overview(
    state: AppStateDep,
    readable_by: ReadableBy,
    limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of rows of a section")] = 20,
) -> Overview:
    """List what needs a person, what runs, what is next to start, and what has ended."""
    overview = state.store.overview
    failures, failed = overview.failures(limit, readable_by)
    held, on_hold = overview.held(limit, readable_by)
    running = [job for job in state.store.jobs_in(HOLDING_SLOTS) if readable_by in (None, job.owner)]
    notices = _notices(state)
    waiting, queued = _next(state, limit, readable_by), state.store.queue.by_owner()
    count = sum(number for owner, number in queued.items() if readable_by in (None, owner)) - on_hold
    return Overview(
        needs_you=[*notices, *_job_items(failures), *_job_items(held)][:limit],
        running=_job_items(running[:limit]),
        next=_job_items(waiting),
        done=_done(state, limit, readable_by),
        counts=OverviewCounts(needs_you=len(notices) + failed + on_hold, running=len(running), next=max(0, count)),
    )


def _notices(state: AppState) -> list[OverviewItem]:
    """What keeps jobs of everybody from running."""
    lack, unusable = state.home.lack_of_space(), state.devices.health.unusable()
    disk = [] if lack is None else [OverviewItem(kind="disk", reason=f"No job starts: {lack}")]
    return disk + [OverviewItem(kind="device", device=name, reason=why) for name, why in sorted(unusable.items())]


def _next(state: AppState, limit: int, readable_by: str | None) -> list[Job]:
    """Jobs with a position, then those that wait for something else."""
    placed = state.store.queue.page(positioned=True, limit=limit, readable_by=readable_by)
    placed = [job for job in placed if job.intent is not JobIntent.HOLD]
    if len(placed) >= limit:
        return placed
    return placed + state.store.overview.unplaced(limit - len(placed), readable_by)[0]


def _job_items(jobs: Sequence[Job]) -> list[OverviewItem]:
    return [
        OverviewItem(kind="job", reason=reason(job), at=job.ended_at or job.started_at, job=job_public(job))
        for job in jobs
    ]


def _done(state: AppState, limit: int, readable_by: str | None) -> list[OverviewItem]:
    experiments = state.store.overview.ended_experiments(limit, readable_by)
    jobs = state.store.overview.done(limit, readable_by)
    ends = sorted([*(job.ended_at or 0.0 for job in jobs), *(each.ended_at for each in experiments)], reverse=True)
    since = ends[limit - 1] if len(ends) > limit else 0.0
    shown = [each for each in experiments if each.ended_at >= since]
    states = state.store.experiments.states([each.experiment.id for each in shown])
    items = _job_items([job for job in jobs if (job.ended_at or 0.0) >= since])
    for each in shown:
        summary = experiment_summary(each.experiment, states[each.experiment.id])
        items.append(OverviewItem(kind="experiment", reason="", at=each.ended_at, experiment=summary))
    return sorted(items, key=lambda item: -(item.at or 0.0))[:limit]
