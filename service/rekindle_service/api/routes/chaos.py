"""Fault injection on request: the keeper of the job injects the fault and records it in its journal."""

import random

from fastapi import APIRouter

from rekindle.contract.chaos import RANK_FAULTS, Fault
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import RankState, notify
from rekindle.contract.states import JobState
from rekindle_service.api.dependencies import JobDep, RunDirDep, find_attempt
from rekindle_service.api.problem_details import ProblemError, invalid_field
from rekindle_service.api.schemas.jobs import ChaosPublic
from rekindle_service.api.schemas.requests import ChaosRequest
from rekindle_service.api.serializers import ranks_public
from rekindle_service.run_readers.snapshots import read_snapshots
from rekindle_service.store.tables import Job

router = APIRouter(tags=["chaos"])


@router.post("/jobs/{job_id}/chaos", status_code=202)
def inject_fault(job: JobDep, run_dir: RunDirDep, body: ChaosRequest) -> ChaosPublic:
    """Inject a fault into a running job; the response names the target rank.

    `GET …/attempts` lists it under `faults` as soon as the keeper has injected it.
    """
    if job.state is not JobState.RUNNING:
        raise ProblemError(409, "wrong-state", f"chaos needs a running job; this one is {job.state}")
    if body.fault is Fault.CORRUPT_SNAPSHOT and not read_snapshots(run_dir.root, run_dir.snapshots):
        raise ProblemError(409, "no-snapshot", f"job {job.id} has no snapshot to corrupt yet")
    rank = _target_rank(job, run_dir, body.rank) if body.fault in RANK_FAULTS else None
    notify(run_dir.bell, {"bell": "chaos", "attempt": job.attempt, "fault": body.fault, "rank": rank})
    return ChaosPublic(attempt=job.attempt, fault=body.fault, rank=rank)


def _target_rank(job: Job, run_dir: RunDir, requested: int | None) -> int:
    """The requested rank if it is running, by default a random running one. Raises ProblemError (422 or 409)."""
    ranks = ranks_public(job, run_dir, find_attempt(job, run_dir, job.attempt))
    known = [each.rank for each in ranks]
    if requested is not None and requested not in known:
        rule = f"must be a rank of the running attempt: {', '.join(map(str, known))}"
        raise invalid_field(
            "rank", rule, requested, f"job {job.id} has no rank {requested}", hint="omit it for a random rank"
        )
    running = [each.rank for each in ranks if each.state is RankState.RUNNING and requested in (None, each.rank)]
    if not running:
        found = "no rank is" if requested is None else f"rank {requested} is not"
        detail = f"chaos needs a running rank; {found} running in attempt {job.attempt}"
        raise ProblemError(409, "wrong-state", detail)
    return random.choice(running)  # noqa: S311  not security-relevant
