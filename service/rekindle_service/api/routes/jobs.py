"""Jobs: submit, list, read, change, delete; cancel, drain and resume write an intent that the reconciler acts on."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response

from rekindle.contract.states import TERMINAL, JobIntent, JobState
from rekindle_service.access.permissions import Identity
from rekindle_service.api.dependencies import AppState, AppStateDep, JobDep, ReadableBy, RunDirDep, submitted_by
from rekindle_service.api.job_json import spliced
from rekindle_service.api.job_references import resolve_job
from rekindle_service.api.pagination import RowPageParamsDep
from rekindle_service.api.permissions import IdempotencyKey, IdentityDep
from rekindle_service.api.problem_details import ProblemError
from rekindle_service.api.request_conversion import keyed, submission_of
from rekindle_service.api.routes.snapshots import require_resumable
from rekindle_service.api.serializers import job_public, validated_job
from rekindle_service.api.worker_pools import SUBMISSIONS
from rekindle_service.experiments.job_array import MAX_ARRAY
from rekindle_service.job_wording import STATE_PHRASES, quoted_label
from rekindle_service.jobs import actions
from rekindle_service.jobs.job_filter import find_jobs, parse_filter
from rekindle_service.jobs.quotas import priority_errors
from rekindle_service.schemas.fields import Page
from rekindle_service.schemas.job_json import JobPublic, QueueStats, SlotCount, ValidatedJob
from rekindle_service.schemas.job_requests import JobCreate, JobPatch, ResumeRequest
from rekindle_service.store import Store
from rekindle_service.store.tables import Job
from rekindle_service.submission import SubmissionError

router = APIRouter(tags=["jobs"])

_FILTER = (
    "Part of the name, ignoring case, and conditions: `state:failed`, `is:held`, `is:unseen`, `is:archived`, `tag:x`, "
    "`owner:ann`, `experiment:x`, `#24`, and arguments of the script as in `lr>0.01`. Quotes make a name of anything"
)
_PENDING = {JobIntent.HOLD: "held", JobIntent.DRAIN: "drained", JobIntent.CANCEL: "cancelled"}


@router.post("/jobs", status_code=201)
@SUBMISSIONS.route
def submit_job(
    state: AppStateDep,
    identity: IdentityDep,
    readable_by: ReadableBy,
    body: JobCreate,
    response: Response,
    idempotency_key: IdempotencyKey,
) -> JobPublic:
    """Submit a job. Its code is copied now: later edits do not affect it."""
    submission = replace(submission_of(body), **submitted_by(state, identity, readable_by))
    job = state.submitter.submit(submission, keyed(idempotency_key, body))
    state.wake()
    response.headers["Location"] = f"/api/v1/jobs/{job.id}"
    return job_public(job)


@router.post("/jobs/validate")
@SUBMISSIONS.route
def validate_job(
    state: AppStateDep,
    identity: IdentityDep,
    readable_by: ReadableBy,
    body: JobCreate,
    jobs: Annotated[int, Query(ge=1, le=MAX_ARRAY, description="Number of such jobs, as in an array. Default: 1")] = 1,
) -> ValidatedJob:
    """Check a job without submitting it: the same errors, or when it would start. Nothing of it is stored."""
    submission = replace(submission_of(body), **submitted_by(state, identity, readable_by))
    draft = state.submitter.draft(submission, jobs)
    may_read = partial(state.access.permissions.may_read, identity)
    return validated_job(draft, state.prospect(draft.job), may_read)


@router.get("/jobs", response_model=Page[JobPublic])
def list_jobs(
    app: AppStateDep,
    params: RowPageParamsDep,
    readable_by: ReadableBy,
    state: Annotated[JobState | None, Query(description="Only jobs in this state; default: in any")] = None,
    name: Annotated[str | None, Query(max_length=200, description="Exact name")] = None,
    q: Annotated[str | None, Query(max_length=1000, description=_FILTER)] = None,
    experiment: Annotated[str | None, Query(max_length=200, description="Id of an experiment")] = None,
    owner: Annotated[str | None, Query(max_length=200, description="Name of the person who submitted them")] = None,
) -> Response:
    """List jobs, latest first."""
    keys, cursor = find_jobs(
        app.store,
        parse_filter(q or ""),
        limit=params.limit,
        before=params.cursor,
        state=state,
        name=name,
        experiment_id=experiment,
        owner=owner,
        readable_by=readable_by,
    )
    page = Page[JobPublic](items=[], next=None if cursor is None else str(cursor))
    return spliced(page, items=app.listed_jobs.read(app.store, keys).values())


@router.get("/jobs/resolve")
def find_named_job(
    app: AppStateDep,
    readable_by: ReadableBy,
    ref: Annotated[str, Query(max_length=500, description="Id, number, name, or the first characters of an id")],
) -> JobPublic:
    """Find a job by id, number (`12`, `#12`), name (the latest of it) or at least 4 first characters of its id."""
    return job_public(resolve_job(app.store, ref, readable_by))


@router.get("/jobs/completions")
def complete_job_name(
    app: AppStateDep,
    readable_by: ReadableBy,
    prefix: Annotated[str, Query(max_length=200, description="First characters of a name or of an id")] = "",
    limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of jobs. Default: 50")] = 50,
) -> Page[JobPublic]:
    """List the latest job of each name that starts with `prefix`, then the jobs whose id does (4 characters or more).

    There is one page; shells complete names of jobs with it.
    """
    jobs = app.store.lookup.starting_with(prefix, readable_by, limit)
    return Page(items=[job_public(job) for job in jobs], next=None)


@router.get("/jobs/{job_id}")
def read_job(job: JobDep) -> JobPublic:
    """Get a job with its current state."""
    return job_public(job)


@router.patch("/jobs/{job_id}")
def patch_job(state: AppStateDep, identity: IdentityDep, job: JobDep, body: JobPatch) -> JobPublic:
    """Change the name, priority, failure limit, tags or note of a job, or put one that has ended into the archive."""
    changes = body.model_dump(exclude_none=True)
    _check_priority(state, identity, job, changes.get("priority", job.priority))
    filed: dict[str, bool] = {name: changes.pop(name) for name in ("archived", "seen") if name in changes}
    if filed:
        job = _filed(state, job, filed)
    if changes:
        job = state.store.patch_job(job.id, **changes) or job
        state.wake()
    return job_public(job)


def _check_priority(state: AppState, identity: Identity, job: Job, priority: int) -> None:
    """Everybody may lower a priority. Raises SubmissionError for one above what the person may give."""
    highest = max(state.access.permissions.max_priority(identity), job.priority)
    if errors := [*priority_errors(priority, highest, identity.person)]:
        raise SubmissionError(errors)


def _filed(state: AppState, job: Job, filed: Mapping[str, bool]) -> Job:
    """Raises ProblemError (409) where the job has not ended."""
    changed = state.store.file_job(job.id, **filed)
    if changed is None:
        detail = f"{_about(job)}; {' and '.join(filed)} can be set only of a job that has ended"
        raise ProblemError(409, "wrong-state", detail)
    return changed


@router.delete("/jobs/{job_id}", status_code=204)
def delete_job(state: AppStateDep, job: JobDep) -> None:
    """Delete a finished job and its files."""
    if job.state not in TERMINAL or not state.store.delete_job(job.id):
        detail = f"{_about(job)}; only a finished job can be deleted: cancel it first"
        raise ProblemError(409, "wrong-state", detail)


@router.post("/jobs/{job_id}/cancel", status_code=202)
def cancel_job(state: AppStateDep, job: JobDep) -> JobPublic:
    """Cancel a job; it can still be resumed from its latest snapshot."""
    return _act(state, job, job.state not in TERMINAL, "cancelled", actions.cancel)


@router.post("/jobs/{job_id}/drain", status_code=202)
def drain_job(state: AppStateDep, job: JobDep) -> JobPublic:
    """Save a snapshot, release the slots and return to the queue, held until resumed."""
    allowed = job.state not in TERMINAL and job.intent is not JobIntent.CANCEL
    return _act(state, job, allowed, "drained", actions.drain)


@router.post("/jobs/{job_id}/resume", status_code=202)
def resume_job(state: AppStateDep, job: JobDep, run_dir: RunDirDep, body: ResumeRequest | None = None) -> JobPublic:
    """Release a held job, or continue one that has ended, from its latest snapshot or from a given one."""
    if body is not None and body.snapshot is not None:
        with actions.SNAPSHOTS_LOCK:
            require_resumable(job, run_dir, body.snapshot)
            resumed = actions.resume_from(state.store, job, body.snapshot)
        return _changed(state, job, resumed)
    return _changed(state, job, actions.resume(state.store, job.id))


def _act(state: AppState, job: Job, allowed: bool, verb: str, action: Callable[[Store, str], Job | None]) -> JobPublic:
    """Raises ProblemError (409) where the state of the job does not allow the action."""
    if not allowed:
        is_pending = job.intent in _PENDING and job.state not in TERMINAL
        pending = f" and about to be {_PENDING[job.intent]}" if is_pending else ""
        raise ProblemError(409, "wrong-state", f"{_about(job)}{pending}, so it cannot be {verb}")
    return _changed(state, job, action(state.store, job.id))


def _about(job: Job) -> str:
    """``job "digits" (#3) has failed``."""
    return f"{quoted_label(job.name, job.number)} {STATE_PHRASES[job.state]}"


def _changed(state: AppState, job: Job, changed: Job | None) -> JobPublic:
    if changed is None:
        named = quoted_label(job.name, job.number)
        raise ProblemError(409, "wrong-state", f"{named} was changed or deleted by another request; read it again")
    state.wake()
    return job_public(changed)


@router.get("/summary")
def read_queue_stats(state: AppStateDep) -> QueueStats:
    """Count the jobs by state and the slots in use, with the mean goodput of all jobs."""
    held = sum(len(job.devices) for job in state.store.holding())
    totals = state.store.totals()
    return QueueStats(
        jobs={job_state: totals.jobs.get(job_state, 0) for job_state in JobState},
        slots=SlotCount(held=held, total=len(state.machine.slots)),
        goodput=totals.goodput,
    )
