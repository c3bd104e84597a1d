"""JSON of the overview: what needs a person, what runs, what is next, what has ended."""

from typing import Literal

from pydantic import BaseModel, Field

from rekindle_service.api.schemas.common import Timestamp, Utf8Str
from rekindle_service.api.schemas.experiments import ExperimentSummary
from rekindle_service.api.schemas.jobs import JobPublic


class OverviewItem(BaseModel):
    """One row of a section. `reason` says in one sentence why it is there, "" where its state says it all.

    `job`, `experiment` and `device` are set by `kind`; a `disk` notice has none of them. `at`: since when; null where
    that is not known.
    """

    kind: Literal["job", "experiment", "device", "disk"]
    reason: Utf8Str
    at: Timestamp | None = None
    job: JobPublic | None = None
    experiment: ExperimentSummary | None = None
    device: str | None = Field(default=None, description="Name of a slot")


class OverviewCounts(BaseModel):
    """How many rows each section would have without its limit. Those of `done` are not counted."""

    needs_you: int
    running: int
    next: int


class Overview(BaseModel):
    """What people care about, in that order; no job is in two sections.

    `needs_you`: low disk space, devices in use by others or put aside, failures that nobody has looked at (see `seen`
    of a job), and held jobs. `running`: jobs that hold slots. `next`: the queue in the order in which it starts, then
    jobs that wait for something other than slots. `done`: what has ended, latest first, with all jobs of an experiment
    as one row.
    """

    needs_you: list[OverviewItem]
    running: list[OverviewItem]
    next: list[OverviewItem]
    done: list[OverviewItem]
    counts: OverviewCounts
