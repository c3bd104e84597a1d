"""JSON of the queue and of the overview: what needs a person, what runs, what is next, and why each job waits."""

from typing import Literal

from rekindle_service.jobs.job_story import SameError
from rekindle_service.schemas.experiment_json import ExperimentSummary
from rekindle_service.schemas.fields import ApiModel, Page, Timestamp, Utf8Str
from rekindle_service.schemas.job_json import JobPublic
from rekindle_service.schemas.job_requests import RankRange


class QueuedJob(ApiModel):
    """A job in the queue."""

    position: int | None
    """Position in the queue; 1 is next. Null beyond the first 200, and where the job does not wait for slots."""
    job: str
    """Id of the job."""
    number: int
    """Number of the job."""
    name: str
    """Name of the job."""
    owner: str
    """Person who submitted it; `local` where that is not recorded."""
    priority: int
    """Priority; higher starts first."""
    ranks: RankRange
    """Requested number of ranks."""
    slots: float
    """Number of slots, or fractions of slots, that it needs at least to start."""
    device: str
    """Kind of the slots (`cpu`, `cuda` or `slurm`), or their names, separated by commas."""
    intent: str
    """What people request of the job: `run`, `hold`, `drain` or `cancel`."""
    waiting_for: str | None
    """What the job waits for, in a sentence; null before the scheduler has seen it."""
    reason: str
    """The same as text for people; "" where nothing is known yet."""
    estimated_start_at: Timestamp | None
    """Estimated start; null where the duration of the jobs before it is not known."""
    preemptions: int
    """Number of times that it returned to the queue because its slots were needed for another job."""
    created_at: Timestamp
    """When it was submitted."""


class OwnerShare(ApiModel):
    """What one owner has used and holds. The less, the earlier their jobs start among those of the same priority."""

    owner: str
    """Name of the person; `local` for jobs without one."""
    slot_seconds: float
    """Used slots times seconds, decayed: those of `half_life_days` ago count half."""
    share: float
    """Fraction of the slot-seconds of all owners, 0 to 1."""
    slots: float
    """Number of slots held now."""
    running: int
    """Number of jobs that hold slots."""
    queued: int
    """Number of jobs in the queue."""
    max_slots: int | None
    """Limit on the slots held at once; null where there is none."""
    max_queued: int | None
    """Limit on the jobs in the queue; null where there is none."""


class Queue(Page[QueuedJob]):
    """Page of the queue, the next job first; jobs that wait for something other than slots come last."""

    owners: list[OwnerShare]
    """Everybody who has queued or running jobs, or has used slots: who has used least comes first."""
    queued: int
    """Number of all jobs in the queue that you may read."""
    half_life_days: float
    """Days after which the use of slots counts half: the setting `fair_share_days`."""


class SlotUse(ApiModel):
    """A job on slots. What of it is after `at` of the answer is a prediction."""

    job: str | None
    """Id of the job; null for a job that you may not read."""
    number: int | None
    """Number of that job."""
    name: str | None
    """Name of that job."""
    state: str
    """State of that job now; `queued` for one that waits for slots, or waits again since."""
    slots: list[str]
    """Names of the slots."""
    share: float
    """Fraction of each of the slots, 0 to 1."""
    started_at: Timestamp
    """When the job got the slots, or probably gets them."""
    ended_at: Timestamp | None
    """When it left them, or probably leaves them; null where that is not known."""


class QueueTimeline(ApiModel):
    """Who held the slots of this machine, and who probably gets them. Jobs on Slurm hold none."""

    at: Timestamp
    """Now."""
    start: Timestamp
    """Begin of the time shown."""
    end: Timestamp
    """End of the time shown."""
    slots: list[str]
    """Names of the slots."""
    items: list[SlotUse]
    """Jobs by their begin, at most the latest 1,000."""


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
    alike: dict[str, list[SameError]] = {}
    """By the id of a failed job in `needs_you`: other such jobs with the same exception at the same line, which have no
    row of their own but count in `counts`."""
