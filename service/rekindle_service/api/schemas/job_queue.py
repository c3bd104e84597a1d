"""JSON of the queue: who is next, why each job waits, and what each owner has used."""

from pydantic import BaseModel, Field

from rekindle_service.api.pagination import Page
from rekindle_service.api.schemas.common import Timestamp
from rekindle_service.api.schemas.requests import RankRange


class QueuedJob(BaseModel):
    """A job in the queue.

    `position`: 1 is next; null beyond the first 200, and where it waits for something other than slots. `slots` is the
    least that it can start with, `device` their kind or their names. `waiting_for` says in one sentence why it waits,
    null before the scheduler has seen it; `reason` is that as a sentence. `estimated_start_at` is null where it is not
    known.
    """

    position: int | None
    job: str = Field(description="Id of the job")
    number: int
    name: str
    owner: str = Field(description='"local" where the job has none')
    priority: int
    ranks: RankRange
    slots: float = Field(description="Devices, or parts of devices, that it needs at least")
    device: str
    intent: str
    waiting_for: str | None
    reason: str
    estimated_start_at: Timestamp | None
    preemptions: int
    created_at: Timestamp


class OwnerShare(BaseModel):
    """What one owner has used and holds. `slot_seconds` decay: those of `half_life_days` ago count half.

    `share`: their part of the slot-seconds of all owners, 0 to 1. The less an owner has used, the earlier their jobs
    start among those of the same priority. `max_slots` and `max_queued` are their limits, null where they have none.
    """

    owner: str
    slot_seconds: float
    share: float
    slots: float = Field(description="Slots held now")
    running: int = Field(description="Jobs that hold slots")
    queued: int
    max_slots: int | None
    max_queued: int | None


class Queue(Page[QueuedJob]):
    """Page of the queue, the next job first; jobs that wait for something other than slots come last.

    `owners`: least used first, with everybody who has jobs that run or wait, or has used slots.
    """

    owners: list[OwnerShare]
    queued: int = Field(description="All jobs in the queue that you may read")
    half_life_days: float
