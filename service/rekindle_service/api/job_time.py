"""What the time of a job went into."""

import time

from fastapi import APIRouter
from pydantic import BaseModel

from rekindle_service.api.lookup import KnownJob, KnownRunDir
from rekindle_service.api.schemas import Moment
from rekindle_service.api.services import Serving
from rekindle_service.jobs.time_breakdown import Interval, TimeCategory, goodput, time_breakdown, totals
from rekindle_service.run_readers.ranks import read_status

router = APIRouter(tags=["records"])

_REPORTING_RANK = 0


class PiecePublic(BaseModel):
    """One stretch of a job's life; `attempt` is null where none was under way."""

    spending: TimeCategory
    attempt: int | None
    began_at: Moment
    seconds: float


class JobTime(BaseModel):
    """`seconds` by what they went into; `goodput` is the share of training in all but `queued`, null before any of it.

    The pieces follow each other without gaps from submission to the end, or to now. Within an attempt training comes
    first, then all its saving, then what a later attempt had to do again: they tell how long each took, not when.
    """

    goodput: float | None
    seconds: dict[TimeCategory, float]
    pieces: list[PiecePublic]


@router.get("/jobs/{job_id}/time")
def read_time(services: Serving, job: KnownJob, run_dir: KnownRunDir) -> JobTime:
    """What every second of the job went into: queued, waiting, starting, training, saving, or training done again."""
    attempts = services.store.attempts(job.id)
    for running in [attempt for attempt in attempts if attempt.ended_at is None]:
        status = read_status(run_dir.root, run_dir.attempt(running.number).rank(_REPORTING_RANK))
        running.saving_seconds = None if status is None else status.saving_seconds
    pieces = time_breakdown(job, attempts, time.time())
    return JobTime(goodput=goodput(pieces), seconds=totals(pieces), pieces=[_public(piece) for piece in pieces])


def _public(each: Interval) -> PiecePublic:
    return PiecePublic(
        spending=each.category, attempt=each.attempt, began_at=each.started_at, seconds=round(each.seconds, 3)
    )
