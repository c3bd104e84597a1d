"""The overview: what needs a person, what runs, what is next, what has ended."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from rekindle.contract.states import JobIntent
from rekindle_service.api.dependencies import AppState, AppStateDep, ChangeableBy, ReadableBy
from rekindle_service.api.job_json import spliced, to_json
from rekindle_service.api.serializers import experiment_summary
from rekindle_service.schemas.queue_json import Overview, OverviewCounts, OverviewItem
from rekindle_service.store.job_queries import EndedExperiment, JobKey, key_of

router = APIRouter(tags=["jobs"])


@router.get("/overview", response_model=Overview)
def read_overview(
    state: AppStateDep,
    readable_by: ReadableBy,
    changeable_by: ChangeableBy,
    limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of rows of a section")] = 20,
) -> Response:
    """List what needs the person who asks and what they may act on, what runs, what is next to start, what has ended.

    Held jobs and failures of which only somebody else takes care are among what is next and what has ended.
    """
    lists = state.store.lists
    failures, failed = lists.failures(limit, changeable_by)
    held, on_hold = lists.held(limit, changeable_by)
    running = [key_of(job) for job in state.store.holding() if readable_by in (None, job.owner)]
    notices = _notices(state, changeable_by)
    queued = state.store.queue.by_owner()
    count = sum(number for owner, number in queued.items() if readable_by in (None, owner)) - on_hold
    counts = OverviewCounts(needs_you=len(notices) + failed + on_hold, running=len(running), next=max(0, count))
    return spliced(
        Overview(needs_you=[], running=[], next=[], done=[], counts=counts),
        needs_you=[*map(to_json, notices), *_items(state, failures), *_items(state, held)][:limit],
        running=_items(state, running[:limit]),
        next=_items(state, _next(state, limit, readable_by, changeable_by)),
        done=_done(state, limit, readable_by, changeable_by),
    )


def _items(state: AppState, keys: Sequence[JobKey]) -> list[bytes]:
    return list(state.overview_jobs.read(state.store, keys).values())


def _notices(state: AppState, changeable_by: str | None) -> list[OverviewItem]:
    """What keeps jobs of everybody from running: who may submit can delete jobs, administrators see to devices."""
    lack = state.home.lack_of_space() if changeable_by != "" else None
    unusable = state.devices.health.unusable() if changeable_by is None else {}
    disk = [] if lack is None else [OverviewItem(kind="disk", reason=f"No job starts: {lack}")]
    return disk + [OverviewItem(kind="device", device=name, reason=why) for name, why in sorted(unusable.items())]


def _next(state: AppState, limit: int, readable_by: str | None, changeable_by: str | None) -> list[JobKey]:
    """Jobs with a position, those that wait for something else, then those that only somebody else may release."""
    placed = state.store.queue.keys(positioned=True, limit=limit, readable_by=readable_by)
    placed = [key for key in placed if key.intent is not JobIntent.HOLD]
    if len(placed) < limit:
        placed += state.store.lists.unplaced(limit - len(placed), readable_by)[0]
    return placed + state.store.lists.held_of_others(limit - len(placed), readable_by, changeable_by)


def _done(state: AppState, limit: int, readable_by: str | None, changeable_by: str | None) -> list[bytes]:
    """Jobs and experiments, latest first; only those shown are read."""
    store = state.store
    jobs = store.lists.done(limit, readable_by)
    jobs += store.lists.failures_of_others(limit, readable_by, changeable_by)
    rows: list[JobKey | EndedExperiment] = [*jobs, *store.lists.ended_experiments(limit, readable_by)]
    shown = sorted(rows, key=lambda row: -(row.ended_at or 0.0))[:limit]
    items = state.overview_jobs.read(store, [row for row in shown if isinstance(row, JobKey)])
    states = store.experiments.states([row.id for row in shown if isinstance(row, EndedExperiment)])
    for row in shown:
        if isinstance(row, EndedExperiment):
            summary = experiment_summary(row.experiment, states[row.id])
            items[row.id] = to_json(OverviewItem(kind="experiment", reason="", at=row.ended_at, experiment=summary))
    return [items[row.id] for row in shown if row.id in items]
