"""JSON of what takes the disk, and of what pruning removes. Sizes are bytes on the disk."""

from typing import Annotated

from pydantic import Field

from rekindle_service.config.settings import RetentionRules
from rekindle_service.retention.disk_usage import KindBytes
from rekindle_service.retention.rules import PruneFailure, PruneItem
from rekindle_service.schemas.fields import ApiModel, Page, RequestModel, Timestamp


class OwnerUsage(ApiModel):
    """The space that the jobs of one person take."""

    owner: str | None
    """Name of the person; null for jobs without one."""
    jobs: int
    """Number of jobs."""
    bytes: int
    """Bytes on the disk."""


class StuckDeletion(ApiModel):
    """A directory that cannot be removed."""

    path: str
    """Path on the server's machine."""
    reason: str
    """Why it cannot be removed, in a sentence."""
    since: Timestamp
    """When it was first tried."""
    next_try_at: Timestamp
    """When it is tried again."""


class DiskUsage(ApiModel):
    """What takes the disk of all runs."""

    total_bytes: int
    """Size of the file system in bytes."""
    free_bytes: int
    """Free bytes of the file system."""
    lack_of_space: str | None
    """Why no job starts for lack of space, in a sentence; null where there is enough."""
    jobs: KindBytes
    """Bytes of all jobs that you may read, by kind."""
    bundles_bytes: int
    """Bytes of uploaded code archives."""
    database_bytes: int
    """Bytes of the database."""
    owners: list[OwnerUsage]
    """Space by owner, largest first."""
    unmeasured: int
    """Number of jobs whose space is not measured yet and not counted."""
    pending_deletions: int
    """Number of directories that are still to be removed."""
    stuck_deletions: list[StuckDeletion]
    """Directories that cannot be removed; empty for those who may not read all jobs."""


class JobUsage(ApiModel):
    """The space that a job takes."""

    id: str
    """Id of the job."""
    number: int
    """Number of the job."""
    name: str
    """Name of the job."""
    owner: str | None
    """Person who submitted it; null where that is not recorded."""
    state: str
    """State of the job."""
    ended_at: Timestamp | None
    """When it ended; null before that."""
    bytes: int | None
    """Bytes on the disk; null where they are not measured yet."""
    kinds: KindBytes | None
    """Bytes by kind; null where they are not measured yet."""


class PruneRequest(RetentionRules, RequestModel):
    """What to remove. Without any rule those of the settings apply."""

    dry_run: bool = True
    """List what would be removed, and remove nothing."""
    owner: Annotated[str | None, Field(max_length=200)] = None
    """Only jobs of this person; default: of everybody for administrators, else your own."""


class PruneResult(Page[PruneItem]):
    """What was removed or, in a dry run, would be: at most the first 1,000 items."""

    dry_run: bool
    """Whether nothing was removed."""
    count: int
    """Number of all items."""
    bytes: int
    """Bytes of all items together."""
    failures: list[PruneFailure]
    """What should have been removed and was not."""
