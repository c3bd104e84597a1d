"""What routes depend on: the parts of the application, and the job, attempt or rank that a path names."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Header, Path, Query, Request
from pydantic import StringConstraints

from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.api.event_stream.single_flight import SingleFlightCache
from rekindle_service.api.middleware.auth import Credentials
from rekindle_service.api.problem_details import ProblemError
from rekindle_service.config.home import Home, is_job_id
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.machine.devices import Machine
from rekindle_service.machine.monitor import MachineMonitor
from rekindle_service.run_readers.ranks import rank_numbers, read_attempts
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

JobId = Annotated[str, Path(description="Id of the job")]
RankNumber = Annotated[int, Path(ge=0, le=1 << 31, description="Global rank")]
AttemptNumber = Annotated[int | None, Query(ge=0, le=1 << 31, description="Number of the attempt; default: the latest")]
IdempotencyKey = Annotated[
    Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]+$", max_length=200)] | None,
    Header(description="A repeated request with the same key returns the result of the first one"),
]


@dataclass(frozen=True, slots=True)
class AppState:
    """The parts of the application that routes use. ``wake`` makes the reconciler act on changed rows at once."""

    home: Home
    store: Store
    machine: Machine
    monitor: MachineMonitor
    submitter: Submitter
    credentials: Credentials
    host: str
    max_bundle_bytes: int
    started_at: float  # seconds since the epoch
    stopping: threading.Event
    wake: Callable[[], None]
    reconciler_alive: Callable[[], bool]
    isolation: str = ""  # one sentence: from what jobs are kept apart
    polls: SingleFlightCache = field(default_factory=SingleFlightCache)


def _app_state(request: Request) -> AppState:
    state: AppState = request.app.state.rekindle
    return state


AppStateDep = Annotated[AppState, Depends(_app_state)]


def find_job(state: AppStateDep, job_id: JobId) -> Job:
    """The job of this id. Raises ProblemError (404)."""
    job = state.store.job(job_id) if is_job_id(job_id) else None
    if job is None:
        detail = f"there is no job {job_id[:64]!r}; GET /api/v1/jobs lists all jobs"
        raise ProblemError(404, "unknown-job", detail)
    return job


JobDep = Annotated[Job, Depends(find_job)]


def find_run_dir(state: AppStateDep, job: JobDep) -> RunDir:
    return state.home.run_dir(job.id)


RunDirDep = Annotated[RunDir, Depends(find_run_dir)]


def find_attempt(job: JobDep, run_dir: RunDirDep, attempt: AttemptNumber = None) -> AttemptInfo:
    """The requested attempt, by default the latest. Raises ProblemError (404)."""
    attempts = read_attempts(run_dir)
    if not attempts:
        detail = f"job {job.id} has no attempt yet: it is {job.state}"
        raise ProblemError(404, "unknown-attempt", detail)
    number = max(attempts) if attempt is None else attempt
    if number not in attempts:
        detail = f"job {job.id} has no attempt {number}; it has {_range('attempt', list(attempts))}"
        raise ProblemError(404, "unknown-attempt", detail)
    return attempts[number]


AttemptDep = Annotated[AttemptInfo, Depends(find_attempt)]


def find_rank(job: JobDep, run_dir: RunDirDep, attempt: AttemptDep, rank: RankNumber) -> int:
    """The requested rank of the attempt. Raises ProblemError (404)."""
    ranks = rank_numbers(run_dir, attempt)
    if rank not in ranks:
        detail = f"attempt {attempt.number} of job {job.id} has no rank {rank}; it has {_range('rank', ranks)}"
        raise ProblemError(404, "unknown-rank", detail)
    return rank


RankDep = Annotated[int, Depends(find_rank)]


def _range(noun: str, numbers: list[int]) -> str:
    """``ranks 0-3`` where none is missing in between, else the list."""
    if not numbers:
        return f"no {noun}s"
    if len(numbers) == 1:
        return f"{noun} {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{noun}s {numbers[0]}\N{EN DASH}{numbers[-1]}"
    return f"{noun}s {', '.join(map(str, numbers))}"
