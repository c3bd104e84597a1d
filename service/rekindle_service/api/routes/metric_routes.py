"""Time series: the metrics that a job has logged, and the resource usage of its ranks."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import StringConstraints

from rekindle.contract.run_dir.attempt_samples import UsageSample
from rekindle_service.api.dependencies import AttemptNumber, JobDep, RunDirDep, find_attempt
from rekindle_service.api.pagination import PageParamsDep, paginate
from rekindle_service.api.problems import ProblemError
from rekindle_service.api.routes.rank_routes import usage_public
from rekindle_service.experiments.comparison import guess_goal
from rekindle_service.machine.monitor import evenly_spaced
from rekindle_service.run_readers.lanes import read_usage
from rekindle_service.run_readers.metric_series import Point, read_attempt_latest, read_attempt_series
from rekindle_service.run_readers.rank_rows import read_attempts
from rekindle_service.schemas.fields import Page
from rekindle_service.schemas.rank_json import MetricName, MetricSeries, UsageSeries

router = APIRouter(tags=["metrics"])


@router.get("/jobs/{job_id}/metrics")
def list_metrics(
    job: JobDep,
    run_dir: RunDirDep,
    params: PageParamsDep,
    attempt: AttemptNumber = None,
    name: Annotated[
        list[Annotated[str, StringConstraints(max_length=200)]] | None,
        Query(max_length=50, description="Only this metric; can be given several times"),
    ] = None,
    max_points: Annotated[int, Query(ge=1, le=100_000, description="Maximum number of points of a series")] = 1000,
) -> Page[MetricSeries]:
    """List the metrics that rank 0 has logged, of all attempts or one, each downsampled to `max_points`.

    Scalars that the script has written for TensorBoard are included. Downsampling keeps minima, maxima, values that
    were not finite, and the last point.
    """
    attempts = [find_attempt(job, run_dir, attempt)] if attempt is not None else read_attempts(run_dir).values()
    names = None if name is None else frozenset(name)
    items = []
    for each in attempts:
        series = read_attempt_series(run_dir, each.number, names=names, max_points=max_points)
        items += [MetricSeries(attempt=each.number, name=metric, points=points) for metric, points in series.items()]
    return paginate(items, params)


@router.get("/jobs/{job_id}/metrics/names")
def list_metric_names(run_dir: RunDirDep, params: PageParamsDep) -> Page[MetricName]:
    """List all metrics that rank 0 has logged in any attempt, with their latest values."""
    latest: dict[str, Point] = {}
    for number in read_attempts(run_dir):
        latest |= read_attempt_latest(run_dir, number)
    page = paginate(list(latest.items()), params)
    return page.map(
        lambda item: MetricName(name=item[0], step=item[1].step, value=item[1].value, goal=guess_goal(item[0]))
    )


@router.get("/jobs/{job_id}/usage")
def list_usage(
    job: JobDep,
    run_dir: RunDirDep,
    params: PageParamsDep,
    attempt: AttemptNumber = None,
    rank: Annotated[int | None, Query(ge=0, le=1 << 31, description="Only this rank")] = None,
    max_points: Annotated[int, Query(ge=1, le=10_000, description="Maximum number of points of a series")] = 300,
) -> Page[UsageSeries]:
    """List the CPU, memory, disk and GPU usage of every rank of an attempt, sampled every 5 seconds.

    Of a long attempt the interval between older samples is longer; each series is downsampled to `max_points`.
    """
    if attempt is None and job.attempt == 0:
        return Page(items=[])
    facts = find_attempt(job, run_dir, attempt)
    samples = list(read_usage(run_dir.root, run_dir.attempt(facts.number).usage))
    known = {usage.rank for sample in samples for usage in sample.ranks}
    if rank is not None and rank not in known | set(range(facts.world_size)):
        detail = f"attempt {facts.number} of job {job.id} has no rank {rank}; GET …/ranks lists its ranks"
        raise ProblemError(404, "unknown-rank", detail)
    page = paginate(sorted(known) if rank is None else [rank], params, lambda each: each)
    return page.map(lambda each: _usage_series(job, facts.number, each, samples, max_points))


def _usage_series(job: JobDep, attempt: int, rank: int, samples: list[UsageSample], max_points: int) -> UsageSeries:
    covering = [sample for sample in samples if sample.of_rank(rank) is not None]
    chosen = evenly_spaced(covering, max_points)
    found = (usage_public(sample, rank, job.spec.devices_per_rank) for sample in chosen)
    points = [point for point in found if point is not None]
    return UsageSeries(attempt=attempt, rank=rank, points=points)
