"""The queue: who is next, why each job waits and until when about, and what each owner has used."""

import time
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from rekindle.contract.states import HOLDING_SLOTS
from rekindle_service.api.dependencies import AppState, AppStateDep, ReadableBy
from rekindle_service.api.schemas.queue import OwnerShare, Queue, QueuedJob
from rekindle_service.api.schemas.requests import RankRange
from rekindle_service.jobs.quotas import LOCAL, owner_of
from rekindle_service.store.tables import Job

router = APIRouter(tags=["jobs"])

_MAX = (1 << 63) - 1
_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class QueuePageParams:
    """A cursor above 0 is the last position of the page before; else the last number, negative, of the other jobs."""

    limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of items")] = 50
    cursor: Annotated[int | None, Query(ge=-_MAX, le=_MAX, description="`next` of the previous page")] = None


@router.get("/queue")
def read_queue(state: AppStateDep, params: Annotated[QueuePageParams, Depends()], readable_by: ReadableBy) -> Queue:
    """List the queued jobs, the next one first, with the reason why each waits, and the shares of the owners."""
    jobs = _page(state, params, readable_by)
    shown = jobs[: params.limit]
    owners = _owners(state, readable_by)
    return Queue(
        items=[_queued_job(job) for job in shown],
        next=_cursor(shown[-1]) if len(jobs) > params.limit else None,
        owners=owners,
        queued=sum(each.queued for each in owners),
        half_life_days=state.fair_share_days,
    )


def _page(state: AppState, params: QueuePageParams, readable_by: str | None) -> list[Job]:
    """One more than the limit, which shows whether a page follows."""
    queue, limit = state.store.queue, params.limit + 1
    jobs: list[Job] = []
    if params.cursor is None or params.cursor > 0:
        jobs = queue.page(readable_by=readable_by, positioned=True, after=params.cursor, limit=limit)
    if len(jobs) < limit:
        after = 0 if params.cursor is None or params.cursor > 0 else -params.cursor
        jobs += queue.page(readable_by=readable_by, positioned=False, after=after, limit=limit - len(jobs))
    return jobs


def _cursor(job: Job) -> str:
    return str(-job.number if job.queue_position is None else job.queue_position)


def _queued_job(job: Job) -> QueuedJob:
    spec, own = job.spec, {"owner", "position", "job", "ranks", "slots", "device"}
    return QueuedJob(
        position=job.queue_position,
        job=job.id,
        owner=owner_of(job),
        ranks=RankRange(min=spec.min_ranks, max=spec.max_ranks),
        slots=spec.min_devices * spec.gpu_share,
        device=spec.device,
        **job.model_dump(include=set(QueuedJob.model_fields) - own),
    )


def _owners(state: AppState, readable_by: str | None) -> list[OwnerShare]:
    """Whoever has jobs that run or wait, or has used slots; of others, nothing where their jobs must not be read."""
    now, half_life = time.time(), state.fair_share_days * _DAY
    used = {owner: usage.decayed(now, half_life) for owner, usage in state.store.usage.read().items()}
    queued = {owner or LOCAL: count for owner, count in state.store.queue.by_owner().items()}
    holding = [job for job in state.store.jobs_in(HOLDING_SLOTS) if not job.spec.is_cluster]
    total = sum(used.values()) or 1.0
    found = []
    for owner in sorted({*used, *queued, *map(owner_of, holding)}, key=lambda each: (used.get(each, 0.0), each)):
        if readable_by not in (None, owner):
            continue
        quota, mine = state.quotas.of(owner), [job for job in holding if owner_of(job) == owner]
        found.append(
            OwnerShare(
                owner=owner,
                slot_seconds=used.get(owner, 0.0),
                share=used.get(owner, 0.0) / total,
                slots=sum(len(job.devices) * job.spec.gpu_share for job in mine),
                running=len(mine),
                queued=queued.get(owner, 0),
                max_slots=quota.slots,
                max_queued=quota.queued,
            )
        )
    return found
