"""Faults on demand: asked for here, injected by the job's keeper, told in its story."""

import random
from typing import Any

from fastapi import APIRouter

from rekindle.contract.chaos import RANK_FAULTS, Fault
from rekindle.contract.run_dir.control import ControlMessage, MessageType, notify
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import RankState
from rekindle.contract.states import JobState
from rekindle_service.api.lookup import KnownJob, KnownRunDir, find_attempt
from rekindle_service.api.problems import ProblemError
from rekindle_service.api.ranks import rank_rows
from rekindle_service.api.request_schemas import ChaosRequest
from rekindle_service.api.schemas import ChaosPublic
from rekindle_service.run_readers.snapshots import read_snapshots
from rekindle_service.store.tables import Job

router = APIRouter(tags=["chaos"])


@router.post("/jobs/{job_id}/chaos", status_code=202)
def inject_fault(job: KnownJob, run_dir: KnownRunDir, body: ChaosRequest) -> ChaosPublic:
    """Have a fault injected into a running job, to see what it costs; the answer names the rank that is struck.

    `GET …/attempts` tells it under `faults` as soon as the keeper has done it.
    """
    if job.state is not JobState.RUNNING:
        raise ProblemError(409, "wrong-state", f"chaos needs a running job; this one is {job.state}")
    if body.fault is Fault.CORRUPT_SNAPSHOT and not read_snapshots(run_dir.root, run_dir.snapshots):
        raise ProblemError(409, "no-snapshot", f"job {job.id} has no snapshot that could be damaged yet")
    rank = _victim(job, run_dir, body.rank) if body.fault in RANK_FAULTS else None
    notify(run_dir, ControlMessage(MessageType.CHAOS, job.attempt, rank, fault=body.fault))
    return ChaosPublic(attempt=job.attempt, fault=body.fault, rank=rank)


def _victim(job: Job, run_dir: RunDir, wanted: int | None) -> int:
    """The rank to strike: the wanted one if it runs, else any that does. Raises ProblemError (422 or 409)."""
    rows = rank_rows(job, run_dir, find_attempt(job, run_dir, job.attempt))
    known = [row.rank for row in rows]
    if wanted is not None and wanted not in known:
        raise _no_such_rank(job, wanted, known)
    running = [row.rank for row in rows if row.state is RankState.RUNNING and wanted in (None, row.rank)]
    if not running:
        what = "its ranks do" if wanted is None else f"rank {wanted} does"
        raise ProblemError(409, "wrong-state", f"chaos needs a running rank; {what} not run in attempt {job.attempt}")
    return random.choice(running)  # noqa: S311  # any will do, nothing is guarded by it


def _no_such_rank(job: Job, rank: int, known: list[int]) -> ProblemError:
    rule = f"must be a rank of the running attempt: {', '.join(map(str, known))}"
    error: dict[str, Any] = {"field": "rank", "rule": rule, "value": rank, "hint": "leave it out for any rank"}
    return ProblemError(422, "invalid-request", f"job {job.id} has no rank {rank}", errors=[error])
