"""The whole of the queue in a few figures."""

from fastapi import APIRouter
from pydantic import BaseModel, Field

from rekindle.contract.states import HOLDING_SLOTS, JobState
from rekindle_service.api.services import Serving

router = APIRouter(tags=["jobs"])


class SlotCount(BaseModel):
    held: int
    total: int


class Summary(BaseModel):
    """``jobs``: how many are in each state. ``goodput``: of all jobs, each as long as it took and as wide as it was."""

    jobs: dict[JobState, int] = Field(examples=[{"queued": 3, "running": 1}])
    slots: SlotCount
    goodput: float | None = Field(description="0 to 1; null before the first job has run")


@router.get("/summary")
def read_summary(services: Serving) -> Summary:
    """How many jobs are in each state, slots in use, and how much of the jobs' time counted."""
    held = sum(len(job.devices) for job in services.store.jobs_in(HOLDING_SLOTS))
    queue_stats = services.store.queue_stats()
    return Summary(
        jobs={state: queue_stats.jobs.get(state, 0) for state in JobState},
        slots=SlotCount(held=held, total=len(services.machine.slots)),
        goodput=queue_stats.goodput,
    )
