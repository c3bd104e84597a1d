"""Ranks of an attempt: their state, stacks, metrics and use of resources; and fault injection by the keeper."""

import random
import time
from dataclasses import asdict, replace
from typing import Annotated

from fastapi import APIRouter, Query

from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.attempt_samples import RankUsage, UsageSample
from rekindle.contract.run_dir.control_messages import (
    RANK_FAULTS,
    ControlMessage,
    Fault,
    MessageType,
    notify,
    post_request,
)
from rekindle.contract.run_dir.digest_records import StepRecord
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import RankState
from rekindle.contract.safe_open import stat_beneath
from rekindle.contract.states import HOLDING_SLOTS, JobState
from rekindle_service.api.dependencies import (
    AttemptDep,
    AttemptNumber,
    AttemptsDep,
    ChosenMetrics,
    JobAttempts,
    JobDep,
    RankDep,
    RunDirDep,
)
from rekindle_service.api.pagination import PageParamsDep, paginate
from rekindle_service.api.problems import ApiError, invalid_field
from rekindle_service.experiments.comparison import guess_goal
from rekindle_service.job_wording import STATE_PHRASES, quoted_label
from rekindle_service.launch.registry import launcher_of
from rekindle_service.machine.monitor import evenly_spaced
from rekindle_service.run_readers.lanes import latest_usage, read_usage
from rekindle_service.run_readers.metric_series import LatestValue, read_attempt_latest, read_attempt_series
from rekindle_service.run_readers.rank_rows import attempt_numbers, read_ranks, wait_for_stack
from rekindle_service.run_readers.stored_snapshots import read_snapshots
from rekindle_service.schemas.attempt_json import ChaosPublic
from rekindle_service.schemas.fields import Page
from rekindle_service.schemas.job_requests import ChaosRequest
from rekindle_service.schemas.rank_json import (
    LayersPublic,
    MetricName,
    MetricSeries,
    PrintedPlace,
    RankPublic,
    StackPublic,
    UsagePublic,
    UsageSeries,
)
from rekindle_service.store.tables import Job

router = APIRouter()

_MAX_USAGE_AGE = 20.0  # seconds for which a sample shows what a rank uses now
_STACK_TIMEOUT = 3.0  # seconds
_REMOTE_SECONDS = 3.0  # more for a keeper on another machine, which looks for requests once a second


@router.get("/jobs/{job_id}/ranks", tags=["ranks"])
def list_ranks(
    job: JobDep, run_dir: RunDirDep, attempts: AttemptsDep, params: PageParamsDep, attempt: AttemptNumber = None
) -> Page[RankPublic]:
    """List the ranks of an attempt; none for a job that has not been launched yet."""
    if attempt is None and job.attempt == 0:
        return Page(items=[])
    ranks = ranks_public(job, run_dir, attempts.find(attempt))
    return paginate(ranks, params, lambda rank: rank.rank)


@router.get("/jobs/{job_id}/ranks/{rank}/layers", tags=["ranks"])
def read_layers(job: JobDep, run_dir: RunDirDep, attempt: AttemptDep, rank: RankDep) -> LayersPublic:
    """Get what the layers have computed in the step that a job records (`record_step`)."""
    record = read_record(run_dir.attempt(attempt.number).rank(rank).layers, StepRecord, run_dir.root)
    if record is None:
        detail = f"rank {rank} of attempt {attempt.number} of job {job.id} has recorded no step"
        raise ApiError(404, "not-found", detail)
    return LayersPublic(
        attempt=attempt.number, rank=rank, step=record.step, samples=record.samples, tensors=record.tensors
    )


@router.post("/jobs/{job_id}/ranks/{rank}/stack", tags=["ranks"])
def read_stack(job: JobDep, run_dir: RunDirDep, attempt: AttemptDep, rank: RankDep) -> StackPublic:
    """Get the Python stacks of all threads of a running rank, requested through its keeper.

    This works while the rank hangs in a collective or holds the GIL, and takes a moment. Only ranks of the latest
    attempt can be running.
    """
    state = next(each.state for each in ranks_public(job, run_dir, attempt) if each.rank == rank)
    if state not in (RankState.STARTING, RankState.RUNNING):
        raise _no_stack(f"rank {rank} of attempt {attempt.number} of job {job.id} is not running: it is {state}")
    path = run_dir.attempt(attempt.number).rank(rank).stacks
    before = stat_beneath(run_dir.root, path)
    if before is None:
        raise _no_stack(f"rank {rank} of job {job.id} has not started its script yet")
    _send(job, run_dir, ControlMessage(MessageType.STACK, attempt.number, rank))
    seconds = _STACK_TIMEOUT + (_REMOTE_SECONDS if launcher_of(job.spec).is_remote else 0.0)
    stack = wait_for_stack(run_dir.root, path, before.st_size, seconds)
    if stack is None:
        raise _no_stack(
            f"rank {rank} of job {job.id} wrote no stack within {seconds:g} s: the process is stopped, or its "
            "keeper is gone; GET …/ranks shows its state"
        )
    return StackPublic(attempt=attempt.number, rank=rank, stack=stack)


def _no_stack(detail: str) -> ApiError:
    return ApiError(409, "no-stack", detail)


@router.post("/jobs/{job_id}/chaos", tags=["ranks"], status_code=202)
def inject_fault(job: JobDep, run_dir: RunDirDep, attempts: AttemptsDep, body: ChaosRequest) -> ChaosPublic:
    """Inject a fault into a running job; the response names the target rank.

    `GET …/attempts` lists it under `faults` as soon as the keeper has injected it.
    """
    if job.state is not JobState.RUNNING:
        raise ApiError(409, "wrong-state", f"chaos needs a running job; this one {STATE_PHRASES[job.state]}")
    if body.fault is Fault.CORRUPT_SNAPSHOT and not read_snapshots(run_dir.root, run_dir.snapshots):
        raise ApiError(409, "no-snapshot", f"{quoted_label(job.name, job.number)} has no snapshot to corrupt yet")
    rank = _target_rank(job, run_dir, attempts, body.rank) if body.fault in RANK_FAULTS else None
    _send(job, run_dir, ControlMessage(MessageType.CHAOS, job.attempt, rank, fault=body.fault))
    return ChaosPublic(attempt=job.attempt, fault=body.fault, rank=rank)


def _send(job: Job, run_dir: RunDir, message: ControlMessage) -> None:
    """Send the keeper a message, on another machine through a file."""
    if launcher_of(job.spec).is_remote:
        post_request(run_dir, message)
    else:
        notify(run_dir, message)


def _target_rank(job: Job, run_dir: RunDir, attempts: JobAttempts, requested: int | None) -> int:
    """The requested rank if it is running, by default a random running one. Raises ApiError (422 or 409)."""
    ranks = ranks_public(job, run_dir, attempts.find(job.attempt))
    known = [each.rank for each in ranks]
    if requested is not None and requested not in known:
        rule = f"must be a rank of the running attempt: {', '.join(map(str, known))}"
        raise invalid_field(
            "rank",
            rule,
            requested,
            f"{quoted_label(job.name, job.number)} has no rank {requested}",
            hint="omit it for a random rank",
        )
    running = [each.rank for each in ranks if each.state is RankState.RUNNING and requested in (None, each.rank)]
    if not running:
        found = "no rank is" if requested is None else f"rank {requested} is not"
        detail = f"chaos needs a running rank; {found} running in attempt {job.attempt}"
        raise ApiError(409, "wrong-state", detail)
    return random.choice(running)  # noqa: S311  not security-relevant


def ranks_public(job: Job, run_dir: RunDir, attempt: AttemptInfo) -> list[RankPublic]:
    """Every rank of an attempt; none is running where the job holds no slots."""
    ended = job.state not in HOLDING_SLOTS
    remote = launcher_of(job.spec).is_remote
    rows = read_ranks(run_dir, attempt, over=ended, remote=remote)
    if job.stalled is not None:
        rows = [replace(row, steps_per_second=None) for row in rows]  # the script's latest word is of the past
    sample = None if ended else latest_usage(run_dir.root, run_dir.attempt(attempt.number).usage)
    if sample is None or time.time() - sample.at >= _MAX_USAGE_AGE:
        return [RankPublic(**asdict(row)) for row in rows]
    each = job.spec.devices_per_rank
    shown = {row.rank for row in rows if remote or row.process_state is not None}
    usage = {one.rank: _rank_usage(sample, one, each) for one in sample.ranks if one.rank in shown}
    return [RankPublic(**asdict(row), usage=usage.get(row.rank), **sample.progress) for row in rows]


def _rank_usage(sample: UsageSample, usage: RankUsage, devices_per_rank: int) -> UsagePublic:
    """What one rank of the sample uses."""
    return UsagePublic(**asdict(usage), at=sample.at, devices=sample.devices_of(usage.rank, devices_per_rank))


@router.get("/jobs/{job_id}/metrics", tags=["metrics"])
def list_metrics(
    run_dir: RunDirDep,
    attempts: AttemptsDep,
    params: PageParamsDep,
    attempt: AttemptNumber = None,
    name: ChosenMetrics = None,
    max_points: Annotated[int, Query(ge=1, le=100_000, description="Maximum number of points of a series")] = 1000,
) -> Page[MetricSeries]:
    """List the metrics of all attempts or one, each downsampled to `max_points`.

    They are those that rank 0 has reported, scalars that the script has written for TensorBoard, and what the ranks
    print. Downsampling keeps minima, maxima, values that
    were not finite, and the last point.
    """
    names = None if name is None else frozenset(name)
    items = []
    for number in attempts.chosen(attempt):
        series = read_attempt_series(run_dir, number, names=names, max_points=max_points)
        items += [MetricSeries(attempt=number, name=metric, points=points) for metric, points in series.items()]
    return paginate(items, params)


@router.get("/jobs/{job_id}/metrics/names", tags=["metrics"])
def list_metric_names(run_dir: RunDirDep, params: PageParamsDep) -> Page[MetricName]:
    """List all metrics of any attempt, with their latest values."""
    latest: dict[str, tuple[int, LatestValue]] = {}
    for number in attempt_numbers(run_dir):
        latest |= {name: (number, found) for name, found in read_attempt_latest(run_dir, number).items()}
    return paginate(list(latest.items()), params).map(lambda item: _metric_name(item[0], *item[1]))


def _metric_name(name: str, attempt: int, latest: LatestValue) -> MetricName:
    line = latest.printed
    printed = None if line is None else PrintedPlace(attempt=attempt, **line._asdict())
    return MetricName(
        name=name,
        step=latest.step,
        epoch=latest.epoch,
        value=latest.value,
        goal=guess_goal(name),
        printed=printed,
    )


@router.get("/jobs/{job_id}/usage", tags=["metrics"])
def list_usage(
    job: JobDep,
    run_dir: RunDirDep,
    attempts: AttemptsDep,
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
    facts = attempts.find(attempt)
    samples = list(read_usage(run_dir.root, run_dir.attempt(facts.number).usage))
    known = {usage.rank for sample in samples for usage in sample.ranks}
    if rank is not None and rank not in known | set(range(facts.world_size)):
        detail = f"attempt {facts.number} of job {job.id} has no rank {rank}; GET …/ranks lists its ranks"
        raise ApiError(404, "unknown-rank", detail)
    page = paginate(sorted(known) if rank is None else [rank], params, lambda each: each)
    return page.map(lambda each: _usage_series(job, facts.number, each, samples, max_points))


def _usage_series(job: JobDep, attempt: int, rank: int, samples: list[UsageSample], max_points: int) -> UsageSeries:
    covering = [(sample, usage) for sample in samples if (usage := sample.of_rank(rank)) is not None]
    chosen = evenly_spaced(covering, max_points)
    points = [_rank_usage(sample, usage, job.spec.devices_per_rank) for sample, usage in chosen]
    return UsageSeries(attempt=attempt, rank=rank, points=points)
