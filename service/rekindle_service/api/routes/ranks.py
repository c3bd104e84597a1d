"""Ranks of an attempt: their state, resource usage and Python stacks."""

from typing import Annotated

from fastapi import APIRouter, Query

from rekindle.contract.run_dir.rank_records import RankState, notify
from rekindle_service.api.dependencies import AttemptDep, AttemptNumber, JobDep, RankDep, RunDirDep, find_attempt
from rekindle_service.api.pagination import Page, PageParamsDep, paginate
from rekindle_service.api.problem_details import ProblemError
from rekindle_service.api.schemas.ranks import RankPublic, StackPublic, UsageSeries
from rekindle_service.api.serializers import ranks_public, usage_public
from rekindle_service.run_readers.stacks import await_stack, stacks_size
from rekindle_service.run_readers.usage import UsageSample, read_usage

router = APIRouter(tags=["ranks"])

_STACK_TIMEOUT = 3.0  # seconds


@router.get("/jobs/{job_id}/ranks")
def list_ranks(
    job: JobDep, run_dir: RunDirDep, params: PageParamsDep, attempt: AttemptNumber = None
) -> Page[RankPublic]:
    """List the ranks of an attempt; none for a job that has not been launched yet."""
    if attempt is None and job.attempt == 0:
        return Page(items=[])
    ranks = ranks_public(job, run_dir, find_attempt(job, run_dir, attempt))
    return paginate(ranks, params, lambda rank: rank.rank)


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
    return page.map(lambda each: _usage_series(facts.number, each, samples, max_points))


def _usage_series(attempt: int, rank: int, samples: list[UsageSample], max_points: int) -> UsageSeries:
    """Downsampled evenly from the end, so that the last sample is always included."""
    covering = [sample for sample in samples if sample.of_rank(rank) is not None]
    chosen = covering[::-1][:: max(1, -(-len(covering) // max_points))][::-1]
    points = [point for sample in chosen if (point := usage_public(sample, rank)) is not None]
    return UsageSeries(attempt=attempt, rank=rank, points=points)


@router.post("/jobs/{job_id}/ranks/{rank}/stack")
def read_stack(job: JobDep, run_dir: RunDirDep, attempt: AttemptDep, rank: RankDep) -> StackPublic:
    """Get the Python stacks of all threads of a running rank, requested through its keeper.

    This works while the rank hangs in a collective or holds the GIL, and takes a moment. Only ranks of the latest
    attempt can be running.
    """
    state = next(each.state for each in ranks_public(job, run_dir, attempt) if each.rank == rank)
    if state not in (RankState.STARTING, RankState.RUNNING):
        raise _no_stack(f"rank {rank} of attempt {attempt.number} of job {job.id} is not running: it is {state}")
    path = run_dir.attempt(attempt.number).rank(rank).stacks
    before = stacks_size(run_dir.root, path)
    if before is None:
        raise _no_stack(f"rank {rank} of job {job.id} has not started its script yet")
    notify(run_dir.bell, {"bell": "stack", "attempt": attempt.number, "rank": rank})
    stack = await_stack(run_dir.root, path, before, _STACK_TIMEOUT)
    if stack is None:
        raise _no_stack(
            f"rank {rank} of job {job.id} wrote no stack within {_STACK_TIMEOUT:g} s: the process is stopped, or its "
            "keeper is gone; GET …/ranks shows its state"
        )
    return StackPublic(attempt=attempt.number, rank=rank, stack=stack)


def _no_stack(detail: str) -> ProblemError:
    return ProblemError(409, "no-stack", detail)
