"""JSON of the files of a job: snapshots, code, and the environment in which it runs."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from rekindle_service.api.pagination import Page
from rekindle_service.api.schemas.common import (
    ApiModel,
    JsonObject,
    ResponseModel,
    Timestamp,
    Utf8Str,
)
from rekindle_service.run_readers.snapshots import SnapshotInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPublic(SnapshotInfo):
    """A committed snapshot (checkpoint)."""

    created_at: Timestamp
    """When the snapshot was committed."""
    pinned: bool = False
    """Whether a person has pinned it: then it is kept until the job is deleted."""


class SnapshotList(Page[SnapshotPublic]):
    """Page of snapshots."""

    policy: Utf8Str | None = Field(examples=["every 42 steps"])
    """When snapshots are taken, as of the latest attempt; null before the first."""


class CodePublic(ApiModel):
    """The code of a job as it was submitted."""

    digest: str
    """Digest of all files: equal digests mean equal files."""
    files: int
    """Number of files."""
    bytes: int
    """Size of all files in bytes."""


class ConfigurationPublic(ApiModel):
    """What a job runs with; null is what was not recorded."""

    directory: Utf8Str
    """Working directory of the script, on the server's machine."""
    code: CodePublic | None
    """The code as it was submitted; null for a recipe."""
    environment: JsonObject | None
    """Host, system, processor, cores, memory (bytes), Python and packages, as the keeper recorded them."""


class FileDifferencePublic(ResponseModel):
    """A file that differs between the code of two jobs."""

    path: Utf8Str
    """Path of the file, relative to the code."""
    change: Literal["added", "removed", "changed"]
    """What this job did to the file, compared with the other one."""
    diff: str | None
    """Changed lines in unified format; null where they are not available, such as for binary files."""


class Bundle(ApiModel):
    """An uploaded code archive."""

    id: str = Field(pattern="^sha256:[0-9a-f]{64}$", examples=["sha256:" + "0" * 64])
    """Id of the archive, for `code.bundle` of a job."""
    bytes: int
    """Size of the archive in bytes."""
