"""The queue: who is next, why each job waits, and what each owner has used."""

import time
from collections import Counter
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Response

from rekindle_service.api.dependencies import AppState, AppStateDep, ReadableBy
from rekindle_service.api.job_json import spliced
from rekindle_service.api.pagination import CURSOR, MAX
from rekindle_service.jobs.quotas import decayed, owner_of, slots_by_owner
from rekindle_service.schemas.queue_json import OwnerShare, Queue
from rekindle_service.store.job_queries import JobKey
from rekindle_service.store.tables import LOCAL, SlotUsage

router = APIRouter(tags=["jobs"])

_DAY = 86400.0  # seconds
_MAX_UNWRITTEN = 120.0  # seconds of use that the scheduler has not written yet, at most


@router.get("/queue", response_model=Queue)
def read_queue(
    state: AppStateDep,
    readable_by: ReadableBy,
    owner: Annotated[str | None, Query(max_length=200, description="Only the jobs of this person")] = None,
    limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of jobs")] = 50,
    cursor: Annotated[int | None, Query(ge=-MAX, le=MAX, description=CURSOR)] = None,
) -> Response:
    """List the queue, next job first: why each waits, when it will start, and what each owner has used."""
    keys = _page(state, readable_by, owner, cursor, limit + 1)
    shown, rest = keys[:limit], keys[limit:]
    queued = {name or LOCAL: count for name, count in state.store.queue.by_owner().items()}
    queue = Queue(
        items=[],
        next=str(_cursor(shown[-1])) if rest else None,
        owners=[each for each in _owners(state, queued) if readable_by in (None, each.owner)],
        queued=sum(count for name, count in queued.items() if readable_by in (None, name)),
        half_life_days=state.fair_share_days,
    )
    return spliced(queue, items=state.queued_jobs.read(state.store, shown).values())


def _page(state: AppState, readable_by: str | None, owner: str | None, cursor: int | None, limit: int) -> list[JobKey]:
    """Jobs that wait for slots by their position, then all others by their number, whose cursor is negative."""
    keys: list[JobKey] = []
    if cursor is None or cursor > 0:
        keys = state.store.queue.keys(readable_by=readable_by, owner=owner, positioned=True, after=cursor, limit=limit)
        cursor = None
    if len(keys) < limit:
        after = None if cursor is None else -cursor
        keys += state.store.queue.keys(
            readable_by=readable_by, owner=owner, positioned=False, after=after, limit=limit - len(keys)
        )
    return keys


def _cursor(key: JobKey) -> int:
    return -key.number if key.queue_position is None else key.queue_position


def _owners(state: AppState, queued: Mapping[str, int]) -> list[OwnerShare]:
    """Everybody who has used, holds or wants slots; who has used least comes first."""
    holding = state.store.holding()
    slots, running = slots_by_owner(holding), Counter(map(owner_of, holding))
    used = _used(state.store.queue.usage(), slots, time.time(), state.fair_share_days * _DAY)
    total = sum(used.values())
    shares = []
    for owner in {*used, *running, *queued}:
        quota, seconds = state.quotas.of(owner), used.get(owner, 0.0)
        shares.append(
            OwnerShare(
                owner=owner,
                slot_seconds=round(seconds, 1),
                share=round(seconds / total, 4) if total else 0.0,
                slots=slots.get(owner, 0.0),
                running=running[owner],
                queued=queued.get(owner, 0),
                max_slots=quota.slots,
                max_queued=quota.queued,
            )
        )
    return sorted(shares, key=lambda each: (each.slot_seconds, each.owner))


def _used(
    stored: Mapping[str, SlotUsage], slots: Mapping[str, float], now: float, half_life: float
) -> dict[str, float]:
    """Decayed slot-seconds by owner, with those since the scheduler has last written them."""
    used = {owner: decayed(usage, now, half_life) for owner, usage in stored.items()}
    for owner, held in slots.items():
        unwritten = now - stored[owner].at if owner in stored else 0.0
        used[owner] = used.get(owner, 0.0) + held * min(max(0.0, unwritten), _MAX_UNWRITTEN)
    return used
