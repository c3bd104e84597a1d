"""Finding the job, attempt and rank that a path names. What is not there is answered with what is."""

from typing import Annotated

from fastapi import Depends, Path, Query

from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.api.problems import ProblemError
from rekindle_service.api.services import Serving
from rekindle_service.config.home import is_job_id
from rekindle_service.run_readers.ranks import rank_numbers, read_attempts
from rekindle_service.store.tables import Job

JobId = Annotated[str, Path(description="Id of the job, as told at submit")]
RankNumber = Annotated[int, Path(ge=0, le=1 << 31, description="Global rank")]
AttemptNumber = Annotated[int | None, Query(ge=0, le=1 << 31, description="Attempt; the latest where it is left out")]


def find_job(services: Serving, job_id: JobId) -> Job:
    """The job of this id. Raises ProblemError (404)."""
    job = services.store.job(job_id) if is_job_id(job_id) else None
    if job is None:
        detail = f"there is no job {job_id[:64]!r} (any more); GET /api/v1/jobs lists those there are"
        raise ProblemError(404, "unknown-job", detail)
    return job


KnownJob = Annotated[Job, Depends(find_job)]


def find_run_dir(services: Serving, job: KnownJob) -> RunDir:
    return services.home.run_dir(job.id)


KnownRunDir = Annotated[RunDir, Depends(find_run_dir)]


def find_attempt(job: KnownJob, run_dir: KnownRunDir, attempt: AttemptNumber = None) -> AttemptInfo:
    """The attempt asked for, or the latest. Raises ProblemError (404)."""
    attempts = read_attempts(run_dir)
    if not attempts:
        detail = f"job {job.id} has had no attempt yet: it is {job.state}"
        raise ProblemError(404, "unknown-attempt", detail)
    number = max(attempts) if attempt is None else attempt
    if number not in attempts:
        detail = f"job {job.id} has no attempt {number}; it has {_span('attempt', list(attempts))}"
        raise ProblemError(404, "unknown-attempt", detail)
    return attempts[number]


KnownAttempt = Annotated[AttemptInfo, Depends(find_attempt)]


def find_rank(job: KnownJob, run_dir: KnownRunDir, facts: KnownAttempt, rank: RankNumber) -> int:
    """The rank asked for, if that attempt has it. Raises ProblemError (404)."""
    ranks = rank_numbers(run_dir, facts)
    if rank not in ranks:
        detail = f"attempt {facts.number} of job {job.id} has no rank {rank}; it has {_span('rank', ranks)}"
        raise ProblemError(404, "unknown-rank", detail)
    return rank


KnownRank = Annotated[int, Depends(find_rank)]


def _span(noun: str, numbers: list[int]) -> str:
    """``ranks 0-3`` where none is missing in between, else the list."""
    if not numbers:
        return f"no {noun}s"
    if len(numbers) == 1:
        return f"{noun} {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{noun}s {numbers[0]}\N{EN DASH}{numbers[-1]}"
    return f"{noun}s {', '.join(map(str, numbers))}"
