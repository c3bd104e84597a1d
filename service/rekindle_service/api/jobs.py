"""Jobs: submit, list, read, change, stop, resume, forget. Every change is a wish in a row; the engine fulfils it."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from pydantic import StringConstraints

from rekindle.contract.states import TERMINAL, JobIntent, JobState
from rekindle_service.api.job_request import submission_of
from rekindle_service.api.job_view import job_public
from rekindle_service.api.lookup import KnownJob, KnownRunDir
from rekindle_service.api.problems import ProblemError
from rekindle_service.api.request_schemas import JobCreate, JobPatch, ResumeRequest
from rekindle_service.api.schemas import JobPublic, Page
from rekindle_service.api.services import Services, Serving
from rekindle_service.api.snapshots import require_rewindable
from rekindle_service.jobs import actions
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

router = APIRouter(tags=["jobs"])

_LARGEST_NUMBER = (1 << 63) - 1

IdempotencyKey = Annotated[
    Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]+$", max_length=200)] | None,
    Header(description="A repeat with the same key is answered with the job of the first request"),
]
Limit = Annotated[int, Query(ge=1, le=200, description="Most items of the answer")]
Cursor = Annotated[int | None, Query(ge=1, le=_LARGEST_NUMBER, description="`next` of the piece before")]


@router.post("/jobs", status_code=201)
def submit_job(
    services: Serving, body: JobCreate, response: Response, idempotency_key: IdempotencyKey = None
) -> JobPublic:
    """Take a job in. Its code is copied now: later edits never reach it."""
    job = services.submitter.submit(submission_of(body), idempotency_key)
    services.wake()
    response.headers["Location"] = f"/api/v1/jobs/{job.id}"
    return job_public(job)


@router.get("/jobs")
def list_jobs(
    services: Serving,
    state: JobState | None = None,
    name: Annotated[str | None, Query(max_length=200, description="Exactly this name")] = None,
    q: Annotated[str | None, Query(max_length=200, description="A part of the name, upper or lower case")] = None,
    experiment: Annotated[str | None, Query(max_length=200, description="Id of the experiment they belong to")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[JobPublic]:
    """Jobs, newest first."""
    jobs = services.store.jobs(
        state=state, name=name, name_part=q, experiment_id=experiment, limit=limit + 1, before=cursor
    )
    more = len(jobs) > limit
    items = [job_public(job) for job in jobs[:limit]]
    return Page(items=items, next=str(items[-1].number) if more else None)


@router.get("/jobs/{job_id}")
def read_job(job: KnownJob) -> JobPublic:
    """One job as it stands."""
    return job_public(job)


@router.patch("/jobs/{job_id}")
def patch_job(services: Serving, job: KnownJob, body: JobPatch) -> JobPublic:
    """Change name, priority or the failure budget; the order of the queue follows at once."""
    changed = services.store.patch_job(job.id, **body.model_dump(exclude_none=True))
    services.wake()
    return job_public(changed or job)


@router.delete("/jobs/{job_id}", status_code=204)
def delete_job(services: Serving, job: KnownJob) -> None:
    """Forget a job that is over, with all its files."""
    if job.state not in TERMINAL or not services.store.delete_job(job.id):
        detail = f"job {job.id} is {job.state}; only one that is over can be deleted: cancel it first"
        raise ProblemError(409, "wrong-state", detail)


@router.post("/jobs/{job_id}/cancel", status_code=202)
def cancel_job(services: Serving, job: KnownJob) -> JobPublic:
    """Stop the job for good; it can still be resumed from its newest snapshot."""
    return _carry(services, job, job.state not in TERMINAL, "cancelled", actions.cancel)


@router.post("/jobs/{job_id}/drain", status_code=202)
def drain_job(services: Serving, job: KnownJob) -> JobPublic:
    """Save, give the slots back and wait in the queue, held, until resumed."""
    possible = job.state not in TERMINAL and job.intent is not JobIntent.CANCEL
    return _carry(services, job, possible, "drained", actions.drain)


@router.post("/jobs/{job_id}/resume", status_code=202)
def resume_job(services: Serving, job: KnownJob, run_dir: KnownRunDir, body: ResumeRequest | None = None) -> JobPublic:
    """Release a held job, or run a failed or cancelled one on from its newest snapshot, or from one that is named."""
    if body is not None and body.snapshot is not None:
        require_rewindable(job, run_dir, body.snapshot)
        return _answer(services, job, actions.resume_from(services.store, job, body.snapshot))
    return _carry(services, job, job.state is not JobState.SUCCEEDED, "resumed", actions.resume)


def _carry(
    services: Services, job: Job, possible: bool, verb: str, action: Callable[[Store, str], Job | None]
) -> JobPublic:
    """Do ``action`` where the job is in a state for it, else ProblemError (409)."""
    if not possible:
        wish = "" if job.intent is JobIntent.RUN or job.state in TERMINAL else f" and to be {_WISHES[job.intent]}"
        raise ProblemError(409, "wrong-state", f"job {job.id} is {job.state}{wish}, so it cannot be {verb}")
    return _answer(services, job, action(services.store, job.id))


def _answer(services: Services, job: Job, changed: Job | None) -> JobPublic:
    if changed is None:
        raise ProblemError(409, "wrong-state", f"job {job.id} has moved on or been deleted in this very moment")
    services.wake()
    return job_public(changed)


_WISHES = {JobIntent.HOLD: "held", JobIntent.DRAIN: "drained", JobIntent.CANCEL: "cancelled"}
