"""Jobs: submit, list, read, change, delete; cancel, drain and resume write an intent that the reconciler acts on."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from rekindle.contract.job import HIDDEN, JobSpec
from rekindle.contract.job_options import TargetKind
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.states import HOLDING_SLOTS, TERMINAL, JobIntent, JobState
from rekindle_service.access.permissions import Identity
from rekindle_service.api.auth import IdentityDep
from rekindle_service.api.dependencies import (
    AppState,
    AppStateDep,
    IdempotencyKeyDep,
    JobDep,
    ReadableBy,
    RunDirDep,
    resolve_job,
    submitted_by,
)
from rekindle_service.api.pagination import RowPageParamsDep
from rekindle_service.api.problems import ApiError
from rekindle_service.api.request_conversion import keyed, submission_of
from rekindle_service.api.routes.snapshot_routes import require_checkpoint, require_resumable
from rekindle_service.api.shared_results import spliced
from rekindle_service.api.worker_pools import SUBMISSIONS
from rekindle_service.experiments.trials import MAX_ARRAY
from rekindle_service.job_wording import STATE_PHRASES, quoted_label
from rekindle_service.jobs import actions
from rekindle_service.jobs.device_check import DeviceCheck
from rekindle_service.jobs.job_filter import find_jobs, parse_filter
from rekindle_service.jobs.job_story import reason
from rekindle_service.jobs.quotas import owner_of, priority_errors, slots_wanted
from rekindle_service.jobs.replay import Additions, Steps, attempt_with, failed_steps, replay_of
from rekindle_service.jobs.scheduler_health import Prospect
from rekindle_service.jobs.submitter import Draft
from rekindle_service.schemas.fields import Page
from rekindle_service.schemas.job_json import DisplacedJob, JobPublic, QueueStats, SlotCount, ValidatedJob
from rekindle_service.schemas.job_requests import JobCreate, JobPatch, ReplayRequest, ResumeRequest
from rekindle_service.store import Store
from rekindle_service.store.tables import Job
from rekindle_service.submission import SubmissionError

router = APIRouter(tags=["jobs"])

_JOB_COLUMNS = tuple(name for name in JobPublic.model_fields if name in Job.model_fields)
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
    idempotency_key: IdempotencyKeyDep,
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
    return spliced(page, items=app.job_json.read(app.store, keys, job_public).values())


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
        return _changed(state, job, state.store.patch_job(job.id, **changes))
    return job_public(job)


def _check_priority(state: AppState, identity: Identity, job: Job, priority: int) -> None:
    """Everybody may lower a priority. Raises SubmissionError for one above what the person may give."""
    highest = max(state.access.permissions.max_priority(identity), job.priority)
    if errors := [*priority_errors(priority, highest, identity.person)]:
        raise SubmissionError(errors)


def _filed(state: AppState, job: Job, filed: Mapping[str, bool]) -> Job:
    """Raises ApiError (409) where the job has not ended."""
    changed = state.store.file_job(job.id, **filed)
    if changed is None:
        detail = f"{_about(job)}; {' and '.join(filed)} can be set only of a job that has ended"
        raise ApiError(409, "wrong-state", detail)
    return changed


@router.delete("/jobs/{job_id}", status_code=204)
def delete_job(state: AppStateDep, job: JobDep) -> None:
    """Delete a finished job and its files."""
    if job.state not in TERMINAL or not state.store.delete_job(job.id):
        detail = f"{_about(job)}; only a finished job can be deleted: cancel it first"
        raise ApiError(409, "wrong-state", detail)


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
    """Release a held job, or continue one that has ended: from its latest snapshot, a given one, or a checkpoint."""
    if body is not None and body.snapshot is not None:
        with actions.SNAPSHOTS_LOCK:
            require_resumable(job, run_dir, body.snapshot)
            resumed = actions.resume_from(state.store, job, body.snapshot)
        return _changed(state, job, resumed)
    if body is not None and body.checkpoint is not None:
        path = require_checkpoint(job, run_dir, body.checkpoint)
        return _changed(state, job, actions.resume_from(state.store, job, path))
    return _changed(state, job, actions.resume(state.store, job.id))


@router.post("/jobs/{job_id}/replay", status_code=201)
@SUBMISSIONS.route
def replay_job(
    state: AppStateDep, identity: IdentityDep, job: JobDep, run_dir: RunDirDep, body: ReplayRequest
) -> JobPublic:
    """Submit a job that computes steps of this one again, from its latest snapshot before them.

    It has the code copy, arguments, environment and interpreter of the original, and a digest of every step.
    """
    attempts = state.store.detailed_attempts(job.id)
    steps = failed_steps(job, attempts) if body.step is None else Steps(body.step, body.until or body.step)
    if body.check_device:
        return _check_device(state, job, attempt_with(steps.first, attempts, job), steps.first)
    additions = Additions(body.record, body.script, body.pdb, body.rank or 0 if body.pdb else body.rank)
    submission = replay_of(job, run_dir, attempts, steps, body.device, additions)
    replayed = state.submitter.submit(replace(submission, **submitted_by(state, identity, None)))
    state.wake()
    return job_public(replayed)


def _check_device(state: AppState, job: Job, attempt: AttemptInfo, step: int) -> JobPublic:
    """Raises ApiError (409) where the job has not ended, or another check is open."""
    if job.device_check and job.state in TERMINAL:
        raise ApiError(409, "wrong-state", f"{quoted_label(job.name, job.number)} has an open device check already")
    check = DeviceCheck(step, attempt.number, asked=True).to_json()
    begin = partial(Store.update_progress, device_check=check)
    return _act(state, job, job.state in TERMINAL, "checked", begin)


def _act(state: AppState, job: Job, allowed: bool, verb: str, action: Callable[[Store, str], Job | None]) -> JobPublic:
    """Raises ApiError (409) where the state of the job does not allow the action."""
    if not allowed:
        is_pending = job.intent in _PENDING and job.state not in TERMINAL
        pending = f" and about to be {_PENDING[job.intent]}" if is_pending else ""
        raise ApiError(409, "wrong-state", f"{_about(job)}{pending}, so it cannot be {verb}")
    return _changed(state, job, action(state.store, job.id))


def _about(job: Job) -> str:
    """``job "digits" (#3) has failed``."""
    return f"{quoted_label(job.name, job.number)} {STATE_PHRASES[job.state]}"


def _changed(state: AppState, job: Job, changed: Job | None) -> JobPublic:
    if changed is None:
        named = quoted_label(job.name, job.number)
        raise ApiError(409, "wrong-state", f"{named} was changed or deleted by another request; read it again")
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


def job_public(job: Job) -> JobPublic:
    """The columns of a job take precedence over its spec: a person may have changed them since submission."""
    spec = job.spec.to_json()
    return JobPublic.model_validate(
        {
            **spec,
            **{name: getattr(job, name) for name in _JOB_COLUMNS},
            "reason": reason(job),
            "checked_step": (job.device_check or {}).get("step"),
            "env": {**dict.fromkeys(spec["env"], HIDDEN), **spec["env_from"]},
            "ranks": {"min": spec["min_ranks"], "max": spec["max_ranks"]},
            "nodes": {"min": spec["min_nodes"], "max": spec["nodes"]},
            "slurm": None if spec["slurm"] is None else {**spec["slurm"], **_slurm_shown(job)},
            "target": {"kind": spec["kind"], "value": spec["target"]},
        }
    )


def validated_job(draft: Draft, prospect: Prospect, may_read: Callable[[str | None], bool]) -> ValidatedJob:
    """``may_read``: whether the jobs of an owner may be named."""
    job, spec = draft.job, draft.job.spec
    job.queue_position, job.waiting_for = prospect.position, prospect.waiting_for
    return ValidatedJob.model_validate(
        {
            **dict(job_public(job)),
            "command": _command(spec),
            "slots": slots_wanted(spec),
            "devices": list(prospect.devices),
            "code_files": draft.code_files,
            "code_bytes": draft.code_bytes,
            "starts_in": prospect.starts_in,
            "reason": "" if prospect.starts_in == 0 else reason(job),
            "displaces": [_displaced_job(each, kind, may_read) for each, kind in prospect.displaced],
        }
    )


def _command(spec: JobSpec) -> list[str]:
    match spec.kind:
        case TargetKind.SCRIPT:
            target = [spec.target]
        case TargetKind.MODULE:
            target = ["-m", spec.target]
        case TargetKind.RECIPE:
            target = ["-m", f"rekindle.recipes.{spec.target}"]
    return [spec.python, *target, *spec.args]


def _displaced_job(job: Job, kind: str, may_read: Callable[[str | None], bool]) -> DisplacedJob:
    if not may_read(job.owner):
        return DisplacedJob(kind=kind)
    return DisplacedJob(kind=kind, id=job.id, number=job.number, name=job.name, owner=owner_of(job))


def excluded_nodes(jobs: Iterable[Job]) -> dict[str, str]:
    """That the jobs have found: the reason by host."""
    return {host: node["reason"] for job in jobs for host, node in (job.slurm or {}).get("excluded", {}).items()}


def _slurm_shown(job: Job) -> dict[str, Any]:
    """What Slurm said of a Slurm job that is over is not followed to its end."""
    shown = ("job_id", "state", "reason", "hosts") if job.state in HOLDING_SLOTS else ("job_id", "hosts")
    column = job.slurm or {}
    return {**{name: column[name] for name in shown if name in column}, "excluded": excluded_nodes([job])}
