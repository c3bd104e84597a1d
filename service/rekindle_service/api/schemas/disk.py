"""JSON of what takes the disk, and of what pruning removes. Sizes are bytes on the disk."""

from typing import Annotated

from pydantic import BaseModel, Field

from rekindle_service.api.pagination import Page
from rekindle_service.api.schemas.common import ResponseModel, Timestamp
from rekindle_service.api.schemas.requests import STRICT
from rekindle_service.retention.rules import ItemKind


class KindBytes(BaseModel):
    """Bytes by what they are: snapshots, output and metrics, code with what scripts wrote there, and the rest."""

    snapshots: int = 0
    logs: int = 0
    code: int = 0
    other: int = 0


class OwnerUsage(BaseModel):
    """The space that the jobs of one person take; `owner` is null for jobs without one."""

    owner: str | None
    jobs: int
    bytes: int


class StuckDeletion(ResponseModel):
    """A directory that cannot be removed, and why."""

    path: str
    reason: str
    since: Timestamp
    next_try_at: Timestamp


class DiskUsage(ResponseModel):
    """What takes the disk of all runs. `unmeasured` jobs are not counted yet."""

    total_bytes: int
    free_bytes: int
    lack_of_space: str | None
    jobs: KindBytes
    bundles_bytes: int
    database_bytes: int
    owners: list[OwnerUsage]
    unmeasured: int
    pending_deletions: int
    stuck_deletions: list[StuckDeletion]


class JobUsage(BaseModel):
    """The space that a job takes; null where it was not measured yet."""

    id: str
    number: int
    name: str
    owner: str | None
    state: str
    ended_at: Timestamp | None
    bytes: int | None
    kinds: KindBytes | None


Days = Annotated[float | None, Field(ge=0, le=36_500)]
Bytes = Annotated[int | None, Field(ge=0, le=1 << 62)]


class PruneRequest(BaseModel):
    """What to remove; without any rule, those of the settings. `dry_run` removes nothing."""

    model_config = STRICT

    dry_run: bool = True
    owner: Annotated[str | None, Field(max_length=200)] = None
    keep_jobs_days: Days = None
    keep_snapshots_days: Days = None
    keep_logs_days: Days = None
    keep_events_days: Days = None
    keep_audit_days: Days = None
    keep_bundles_days: Days = None
    owner_bytes: Bytes = None
    jobs_bytes: Bytes = None


class PruneItem(BaseModel):
    """One thing that is removed, and why; `count` is a number of rows."""

    kind: ItemKind
    job_id: str | None
    number: int | None
    name: str
    owner: str | None
    bytes: int
    count: int
    reason: str


class PruneFailure(BaseModel):
    """One thing that should have been removed and was not."""

    item: PruneItem
    reason: str


class PruneResult(Page[PruneItem]):
    """What was removed or, in a dry run, would be: the first 1,000 items, with the number and size of all."""

    dry_run: bool
    count: int
    bytes: int
    failures: list[PruneFailure]
