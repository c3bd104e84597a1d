"""What the ranks of a job use of processor, memory, disk and GPUs."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.usage import GpuUsage, UsageSample
from rekindle_service.api.lookup import AttemptNumber, KnownJob, KnownRunDir, find_attempt
from rekindle_service.api.pieces import WantedPiece
from rekindle_service.api.problems import ProblemError
from rekindle_service.api.schemas import Moment, Page
from rekindle_service.run_readers.usage import read_usage

router = APIRouter(tags=["ranks"])


class UsagePoint(BaseModel):
    """One look at a rank with the processes that it has started: `cpu_percent` 100 is one core, null at the first look.

    Bytes read and written are those from and to disks, since the rank began.
    """

    at: Moment
    cpu_percent: float | None
    rss_bytes: int
    read_bytes: int
    written_bytes: int
    devices: list[GpuUsage]


class UsageSeries(BaseModel):
    attempt: int
    rank: int
    points: list[UsagePoint]


@router.get("/jobs/{job_id}/usage")
def list_usage(
    job: KnownJob,
    run_dir: KnownRunDir,
    piece: WantedPiece,
    attempt: AttemptNumber = None,
    rank: Annotated[int | None, Query(ge=0, le=1 << 31, description="Only this rank")] = None,
    max_points: Annotated[int, Query(ge=1, le=10_000, description="Most points of a series")] = 300,
) -> Page[UsageSeries]:
    """Processor, memory, disk and GPU of every rank of an attempt (the latest unless told), looked at every 5 seconds.

    Of a long attempt the older looks lie further apart; each series is thinned to `max_points`.
    """
    if attempt is None and job.attempt == 0:
        return Page(items=[])
    facts = find_attempt(job, run_dir, attempt)
    samples = list(read_usage(run_dir.root, run_dir.attempt(facts.number).usage))
    known = {usage.rank for sample in samples for usage in sample.ranks}
    if rank is not None and rank not in known | set(range(facts.world_size)):
        detail = f"attempt {facts.number} of job {job.id} has no rank {rank}; GET …/ranks lists those it has"
        raise ProblemError(404, "unknown-rank", detail)
    ranks = sorted(known) if rank is None else [rank]
    ranks, following = piece.of(ranks, lambda each: each)
    return Page(items=[_series(facts, each, samples, max_points) for each in ranks], next=following)


def _series(facts: AttemptInfo, rank: int, samples: list[UsageSample], most: int) -> UsageSeries:
    """Evenly thinned from the end, so that the last look is always told."""
    told = [sample for sample in samples if sample.of_rank(rank) is not None]
    chosen = told[::-1][:: max(1, -(-len(told) // most))][::-1]
    points = [point for sample in chosen if (point := _point(sample, rank)) is not None]
    return UsageSeries(attempt=facts.number, rank=rank, points=points)


def _point(sample: UsageSample, rank: int) -> UsagePoint | None:
    usage = sample.of_rank(rank)
    if usage is None:
        return None
    return UsagePoint(
        at=sample.at,
        cpu_percent=usage.cpu_percent,
        rss_bytes=usage.rss_bytes,
        read_bytes=usage.read_bytes,
        written_bytes=usage.written_bytes,
        devices=sample.devices_of(rank),
    )
