"""The disk: what takes its space, what could not be deleted, and pruning."""

import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from rekindle_service.access.permissions import Identity, Scope
from rekindle_service.api.auth import IdentityDep
from rekindle_service.api.dependencies import AppState, AppStateDep, ReadableBy
from rekindle_service.api.pagination import PageParamsDep, paginate
from rekindle_service.api.problems import ApiError
from rekindle_service.retention.disk_usage import KindBytes, OwnerBytes
from rekindle_service.retention.rules import PruneFailure, PruneItem
from rekindle_service.schemas.disk_json import (
    DiskUsage,
    JobUsage,
    OwnerUsage,
    PruneRequest,
    PruneResult,
    StuckDeletion,
)
from rekindle_service.schemas.fields import Page
from rekindle_service.store.retention_store import JobEntry

router = APIRouter(tags=["disk"])

_MAX_ITEMS = 1000
_DATABASE_SUFFIXES = ("", "-wal", "-shm")


@router.get("/disk")
def read_disk_usage(state: AppStateDep, readable_by: ReadableBy) -> DiskUsage:
    """Get what takes the disk, by kind and by owner, and what could not be deleted."""
    retention, disk = state.retention, shutil.disk_usage(state.home.runs)
    owners = {name: each for name, each in retention.usage.owners().items() if readable_by in (None, name)}
    return DiskUsage(
        total_bytes=disk.total,
        free_bytes=disk.free,
        lack_of_space=state.home.lack_of_space(),
        jobs=_sum(owners.values()),
        bundles_bytes=retention.usage.bundles,
        database_bytes=_database_bytes(state),
        owners=_owners(owners),
        unmeasured=sum(each.jobs - each.measured for each in owners.values()),
        pending_deletions=retention.deletions.pending,
        stuck_deletions=[StuckDeletion(**asdict(each)) for each in retention.deletions.stuck() if readable_by is None],
    )


def _sum(usages: Iterable[OwnerBytes]) -> KindBytes:
    total = KindBytes()
    for each in usages:
        total.add(each.usage)
    return total


def _owners(owners: dict[str | None, OwnerBytes]) -> list[OwnerUsage]:
    """Largest first."""
    found = [OwnerUsage(owner=owner, jobs=each.jobs, bytes=each.usage.total) for owner, each in owners.items()]
    return sorted(found, key=lambda owner: -owner.bytes)


def _database_bytes(state: AppState) -> int:
    files = [state.home.database.with_name(state.home.database.name + suffix) for suffix in _DATABASE_SUFFIXES]
    return sum(file.stat().st_size for file in files if file.exists())


@router.get("/disk/jobs")
def list_jobs_by_size(
    state: AppStateDep,
    params: PageParamsDep,
    readable_by: ReadableBy,
    owner: Annotated[str | None, Query(max_length=200, description="Only the jobs of this person")] = None,
) -> Page[JobUsage]:
    """List the jobs with the space that they take, largest first."""
    page = paginate(state.retention.usage.largest(_owner_filter(readable_by, owner)), params)
    ids = [job_id for _, _, job_id, _ in page.items]
    jobs = {job.id: job for job in state.store.retention.entries(ids)}
    return Page(items=[_job_usage(state, jobs[job_id]) for job_id in ids if job_id in jobs], next=page.next)


def _owner_filter(readable_by: str | None, owner: str | None) -> Callable[[str | None], bool] | None:
    """None: the jobs of all owners."""
    wanted = {name for name in (readable_by, owner) if name is not None}
    return (lambda name: wanted == {name}) if wanted else None


def _job_usage(state: AppState, job: JobEntry) -> JobUsage:
    usage = state.retention.usage.known(job.id)
    return JobUsage.model_validate({**job._asdict(), "bytes": usage and usage.total, "kinds": usage})


@router.post("/disk/prune")
def prune(state: AppStateDep, identity: IdentityDep, body: PruneRequest) -> PruneResult:
    """Remove what the rules allow, or list it (`dry_run`, the default): finished jobs, snapshots, logs, unused code.

    A job that has not ended loses nothing, and a finished one keeps its latest intact snapshot as long as it is kept.
    Other people than administrators prune their own jobs.
    """
    owner = _prunable_owner(identity, body)
    given = body.model_dump(exclude={"dry_run", "owner"}, exclude_none=True)
    rules = body if given else state.retention.rules
    if body.dry_run:
        return _result(state.retention.plan(rules, owner), [], dry_run=True)
    removed, failures = state.retention.prune(rules, owner)
    state.wake()
    return _result(removed, failures, dry_run=False)


def _prunable_owner(identity: Identity, body: PruneRequest) -> str | None:
    """Whose jobs are pruned; None: everybody's."""
    if identity.scope.includes(Scope.ADMIN):
        return body.owner
    if body.owner not in (None, identity.person):
        detail = f"{identity.person} may prune only their own jobs, not those of {body.owner}: ask an administrator"
        raise ApiError(403, "not-owner", detail)
    return identity.person


@router.post("/disk/retry-deletions", status_code=204)
def retry_deletions(state: AppStateDep) -> None:
    """Try again now to delete what could not be deleted."""
    state.retention.deletions.retry()


def _result(items: list[PruneItem], failures: list[PruneFailure], *, dry_run: bool) -> PruneResult:
    return PruneResult(
        items=items[:_MAX_ITEMS],
        dry_run=dry_run,
        count=len(items),
        bytes=sum(item.bytes for item in items),
        failures=failures[:_MAX_ITEMS],
    )
