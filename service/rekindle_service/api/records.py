"""What a job has left behind: attempts, metrics and its story."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import StringConstraints

from rekindle_service.api.job_view import attempts_public, event_public
from rekindle_service.api.lookup import AttemptNumber, KnownJob, KnownRunDir, find_attempt
from rekindle_service.api.pieces import WantedPiece
from rekindle_service.api.schemas import AttemptPublic, EventPublic, MetricName, MetricSeries, Page
from rekindle_service.api.services import Serving
from rekindle_service.run_readers.metrics import LatestValue, read_attempt_latest, read_attempt_series
from rekindle_service.run_readers.ranks import read_attempts

router = APIRouter(tags=["records"])


@router.get("/jobs/{job_id}/attempts")
def list_attempts(services: Serving, job: KnownJob, piece: WantedPiece) -> Page[AttemptPublic]:
    """Every launch of torchrun, oldest first."""
    attempts = attempts_public(services.store.attempts(job.id))
    items, following = piece.of(attempts, lambda attempt: attempt.number)
    return Page(items=items, next=following)


@router.get("/jobs/{job_id}/metrics")
def list_metrics(
    job: KnownJob,
    run_dir: KnownRunDir,
    piece: WantedPiece,
    attempt: AttemptNumber = None,
    name: Annotated[
        list[Annotated[str, StringConstraints(max_length=200)]] | None,
        Query(max_length=50, description="Only this metric; may be given several times"),
    ] = None,
    max_points: Annotated[int, Query(ge=1, le=100_000, description="Most points of a series")] = 1000,
) -> Page[MetricSeries]:
    """The series that rank 0 has logged, of every attempt unless one is named, each thinned to `max_points`.

    Scalars that the script has written for TensorBoard are among them. Thinning keeps lows, highs, values that were not
    finite, and the last point.
    """
    chosen = [find_attempt(job, run_dir, attempt)] if attempt is not None else read_attempts(run_dir).values()
    names = None if name is None else frozenset(name)
    items = []
    for facts in chosen:
        series = read_attempt_series(run_dir, facts.number, names=names, max_points=max_points)
        items += [MetricSeries(attempt=facts.number, name=metric, points=points) for metric, points in series.items()]
    items, following = piece.of(items)
    return Page(items=items, next=following)


@router.get("/jobs/{job_id}/metrics/names")
def list_metric_names(run_dir: KnownRunDir, piece: WantedPiece) -> Page[MetricName]:
    """Every metric that rank 0 has logged in any attempt, in the order of their first appearance."""
    newest: dict[str, LatestValue] = {}
    for number in read_attempts(run_dir):
        newest |= read_attempt_latest(run_dir, number)
    told, following = piece.of(list(newest.items()))
    items = [MetricName(name=name, step=last.step, value=last.value) for name, last in told]
    return Page(items=items, next=following)


@router.get("/jobs/{job_id}/events")
def list_events(services: Serving, job: KnownJob, piece: WantedPiece) -> Page[EventPublic]:
    """All that happened to the job, oldest first."""
    events, following = piece.of(services.store.events(job.id), lambda event: event.id)
    return Page(items=[event_public(event) for event in events], next=following)
