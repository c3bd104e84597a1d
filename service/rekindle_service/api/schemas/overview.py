"""JSON of the overview: what needs a person, what runs, what is next, what has ended."""

from typing import Literal

from rekindle_service.api.schemas.common import ApiModel, Timestamp, Utf8Str
from rekindle_service.api.schemas.experiments import ExperimentSummary
from rekindle_service.api.schemas.jobs import JobPublic


class OverviewItem(ApiModel):
    """One row of a section: a job, an experiment, a device or a notice about the disk."""

    kind: Literal["job", "experiment", "device", "disk"]
    """What the row is about; the field of the same name has it. `disk` has none."""
    reason: Utf8Str
    """Why it is there, in a sentence; "" where its state says it all."""
    at: Timestamp | None = None
    """Since when; null where that is not known."""
    job: JobPublic | None = None
    """The job; null for rows of another kind."""
    experiment: ExperimentSummary | None = None
    """The experiment; null for rows of another kind."""
    device: str | None = None
    """Name of the slot; null for rows of another kind."""


class OverviewCounts(ApiModel):
    """Number of rows that each section would have without its limit. Those of `done` are not counted."""

    needs_you: int
    """Number of rows of `needs_you`."""
    running: int
    """Number of rows of `running`."""
    next: int
    """Number of rows of `next`."""


class Overview(ApiModel):
    """What people care about, in that order; no job is in two sections."""

    needs_you: list[OverviewItem]
    """Low disk space, devices that are disabled or used by others, failed jobs whose outcome nobody has seen, and held
    jobs."""
    running: list[OverviewItem]
    """Jobs that hold slots."""
    next: list[OverviewItem]
    """The queue in the order in which it starts, then jobs that wait for something other than slots."""
    done: list[OverviewItem]
    """What has ended, latest first, with all jobs of an experiment as one row."""
    counts: OverviewCounts
    """Number of rows without the limit."""
