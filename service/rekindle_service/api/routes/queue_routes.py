"""The queue: who is next, why each job waits, what each owner has used; and the overview of all jobs."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Query, Response

from rekindle.contract.states import JobIntent
from rekindle_service.api.auth import IdentityDep
from rekindle_service.api.dependencies import AppState, AppStateDep, ChangeableBy, ReadableBy
from rekindle_service.api.pagination import CURSOR, MAX
from rekindle_service.api.routes.experiment_routes import experiment_summary
from rekindle_service.api.routes.job_routes import job_public
from rekindle_service.api.shared_results import spliced, to_json
from rekindle_service.jobs.job_story import SameError, reason
from rekindle_service.jobs.quotas import decayed, owner_of, slots_by_owner, slots_wanted
from rekindle_service.launch.registry import launcher_of, takes_slots
from rekindle_service.schemas.queue_json import (
    Overview,
    OverviewCounts,
    OverviewItem,
    OwnerShare,
    Queue,
    QueuedJob,
    QueueTimeline,
    SlotUse,
)
from rekindle_service.store.job_queries import EndedExperiment, JobKey, key_of
from rekindle_service.store.queue_store import HeldSlots, held_slots
from rekindle_service.store.tables import LOCAL, Job, SlotUsage

router = APIRouter(tags=["jobs"])

_DAY = 86400.0  # seconds
_HOUR = 3600.0
_MAX_USES = 1000  # of slots in one answer
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
    return spliced(queue, items=state.job_json.read(state.store, shown, queued_job).values())


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


@router.get("/queue/timeline")
def read_queue_timeline(
    state: AppStateDep,
    readable_by: ReadableBy,
    hours: Annotated[float, Query(gt=0, le=24, description="Hours before now, and after it")] = 2,
) -> QueueTimeline:
    """Show which job held, holds and will probably get each slot.

    Predictions follow from the time left that running jobs report or print, from time limits, and from how long jobs
    of the same name took.
    """
    now, span = time.time(), hours * _HOUR
    slots = [slot.name for slot in state.machine.slots]
    uses = [*_past_uses(state, now - span), *_uses_from_now(state, now, span)]
    items = [_slot_use(use, slots, readable_by) for use in sorted(uses, key=attrgetter("started_at"))]
    shown = [item for item in items if item.slots]
    return QueueTimeline(at=now, start=now - span, end=now + span, slots=slots, items=shown[-_MAX_USES:])


def _past_uses(state: AppState, since: float) -> Iterator[HeldSlots]:
    """Attempts of one run on the same slots are one use: the job holds them between two attempts as well."""
    holding = {job.id: job for job in state.store.holding()}
    for (job_id, run, devices), group in groupby(
        state.store.queue.held_since(since, holding), key=lambda each: (each.job_id, each.run, each.devices)
    ):
        attempts = list(group)
        job, ended = holding.get(job_id), attempts[-1].ended_at
        if job is None or (run, devices) != (job.run, job.devices):
            yield attempts[0]._replace(ended_at=attempts[0].started_at if ended is None else ended)


def _uses_from_now(state: AppState, now: float, span: float) -> Iterator[HeldSlots]:
    outlook = state.outlook()
    for job in state.store.holding():
        left, begun = outlook.time_left.get(job.id), min(now, job.devices_since or now)
        yield held_slots(job, job.devices, begun, None if left is None else now + left)
    for job, slots, starts_in, seconds in outlook.predictions:
        if starts_in < span:
            begins = now + starts_in
            yield held_slots(job, slots, begins, None if seconds is None else begins + seconds)


def _slot_use(use: HeldSlots, slots: Sequence[str], readable_by: str | None) -> SlotUse:
    """The job is not named where it must not be read."""
    may_read, held = readable_by in (None, use.owner), set(use.devices)
    return SlotUse(
        job=use.job_id if may_read else None,
        number=use.number if may_read else None,
        name=use.name if may_read else None,
        state=use.state,
        slots=[name for name in slots if name in held],
        share=use.gpu_share or 1.0,
        started_at=use.started_at,
        ended_at=None if use.ended_at is None else max(use.started_at, use.ended_at),
    )


@router.get("/overview", response_model=Overview)
def read_overview(
    state: AppStateDep,
    readable_by: ReadableBy,
    changeable_by: ChangeableBy,
    identity: IdentityDep,
    limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of rows of a section")] = 20,
    mine: Annotated[bool, Query(description="Only jobs that you submitted")] = False,
) -> Response:
    """List what needs the person who asks and what they may act on, what runs, what is next to start, what has ended.

    Held jobs and failures of which only somebody else takes care are among what is next and what has ended.
    """
    lists, notices = state.store.lists, _notices(state, changeable_by)
    if mine:
        readable_by, changeable_by = identity.person, identity.person if changeable_by != "" else ""
    failures, failed, alike = lists.failures(limit, changeable_by)
    held, on_hold = lists.held(limit, changeable_by)
    running = [key_of(job) for job in state.store.holding() if readable_by in (None, job.owner)]
    queued = state.store.queue.by_owner()
    count = sum(number for owner, number in queued.items() if readable_by in (None, owner)) - on_hold
    counts = OverviewCounts(needs_you=len(notices) + failed + on_hold, running=len(running), next=max(0, count))
    same = {job_id: [SameError(*each) for each in others] for job_id, others in alike.items()}
    return spliced(
        Overview(needs_you=[], running=[], next=[], done=[], counts=counts, alike=same),
        needs_you=[*map(to_json, notices), *_items(state, failures), *_items(state, held)][:limit],
        running=_items(state, running[:limit]),
        next=_items(state, _next(state, limit, readable_by, changeable_by)),
        done=_done(state, limit, readable_by, changeable_by),
    )


def _items(state: AppState, keys: Sequence[JobKey]) -> list[bytes]:
    return list(state.job_json.read(state.store, keys, overview_job).values())


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
    items = state.job_json.read(store, [row for row in shown if isinstance(row, JobKey)], overview_job)
    states = store.experiments.states([row.id for row in shown if isinstance(row, EndedExperiment)])
    for row in shown:
        if isinstance(row, EndedExperiment):
            summary = experiment_summary(row.experiment, states[row.id])
            items[row.id] = to_json(OverviewItem(kind="experiment", reason="", at=row.ended_at, experiment=summary))
    return [items[row.id] for row in shown if row.id in items]


def queued_job(job: Job) -> QueuedJob:
    spec = job.spec
    slots = ",".join(spec.device_names) or spec.device_kind
    return QueuedJob.model_validate(
        {
            **job.model_dump(include=set(QueuedJob.model_fields)),
            "position": job.queue_position,
            "job": job.id,
            "owner": owner_of(job),
            "ranks": {"min": spec.min_ranks, "max": spec.max_ranks},
            "slots": slots_wanted(spec),
            "device": slots if takes_slots(spec) else launcher_of(spec).name,
            "reason": reason(job),
        }
    )


def overview_job(job: Job) -> OverviewItem:
    return OverviewItem(kind="job", reason=reason(job), at=job.ended_at or job.started_at, job=job_public(job))
