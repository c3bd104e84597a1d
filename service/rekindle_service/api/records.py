"""What a job has left behind: attempts, metrics, snapshots and its story."""

from typing import Annotated

from fastapi import APIRouter, Query

from rekindle_service.api.job_view import attempt_public, event_public
from rekindle_service.api.lookup import AttemptNumber, KnownJob, KnownRunDir, find_attempt
from rekindle_service.api.schemas import AttemptPublic, EventPublic, MetricSeries, Page, SnapshotList, SnapshotPublic
from rekindle_service.api.services import Serving
from rekindle_service.readers.metric_reader import read_series
from rekindle_service.readers.rank_reader import read_attempts, read_status
from rekindle_service.readers.snapshot_reader import read_snapshots

router = APIRouter(tags=["records"])

_REPORTING_RANK = 0


@router.get("/jobs/{job_id}/attempts")
def list_attempts(services: Serving, job: KnownJob) -> Page[AttemptPublic]:
    """Every launch of torchrun, oldest first."""
    return Page(items=[attempt_public(attempt) for attempt in services.store.attempts(job.id)])


@router.get("/jobs/{job_id}/metrics")
def list_metrics(
    job: KnownJob,
    run_dir: KnownRunDir,
    attempt: AttemptNumber = None,
    name: Annotated[str | None, Query(max_length=200, description="Only this metric")] = None,
    max_points: Annotated[int, Query(ge=10, le=100_000, description="Most points of a series")] = 1000,
) -> Page[MetricSeries]:
    """The series that rank 0 has logged, of every attempt unless one is named, each thinned to `max_points`.

    Thinning keeps lows, highs, values that were not finite, and the last point.
    """
    chosen = [find_attempt(job, run_dir, attempt)] if attempt is not None else read_attempts(run_dir).values()
    items = []
    for facts in chosen:
        path = run_dir.attempt(facts.number).rank(_REPORTING_RANK).metrics
        series = read_series(run_dir.root, path, name=name, max_points=max_points)
        items += [MetricSeries(attempt=facts.number, name=metric, points=points) for metric, points in series.items()]
    return Page(items=items)


@router.get("/jobs/{job_id}/snapshots")
def list_snapshots(run_dir: KnownRunDir) -> SnapshotList:
    """The committed snapshots, newest first, and how often they are taken."""
    found = read_snapshots(run_dir.root, run_dir.snapshots)
    latest = max(read_attempts(run_dir), default=0)
    status = read_status(run_dir.root, run_dir.attempt(latest).rank(_REPORTING_RANK))
    return SnapshotList(
        items=[SnapshotPublic.model_validate(info) for info in found],
        cadence=None if status is None else status.snapshot_cadence,
    )


@router.get("/jobs/{job_id}/events")
def list_events(services: Serving, job: KnownJob) -> Page[EventPublic]:
    """All that happened to the job, oldest first."""
    return Page(items=[event_public(event) for event in services.store.events(job.id)])
