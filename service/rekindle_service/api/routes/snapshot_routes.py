"""Snapshots of a job: list, pin, download; and whether a job can resume from one."""

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.script_files import MAX_CHECKPOINTS, Checkpoint, Observations, is_unchanged, shown_path
from rekindle.contract.run_dir.snapshot_dir import read_pins
from rekindle.contract.states import TERMINAL, JobIntent, JobState
from rekindle_service.api.dependencies import AppStateDep, JobDep, RunDirDep
from rekindle_service.api.downloads import ZIP, Download, attachment
from rekindle_service.api.pagination import PageParamsDep, paginate
from rekindle_service.api.problems import ApiError
from rekindle_service.job_wording import STATE_PHRASES, quoted_label
from rekindle_service.jobs import actions
from rekindle_service.mirror.state import read_state
from rekindle_service.run_readers.rank_rows import attempt_numbers, read_rank_zero_status
from rekindle_service.run_readers.stored_snapshots import read_snapshots, snapshot_files
from rekindle_service.run_readers.zip_stream import Member, zip_stream
from rekindle_service.schemas.attempt_json import SnapshotList, SnapshotPublic
from rekindle_service.store.tables import Job

router = APIRouter(tags=["snapshots"])

CheckpointPath = Annotated[str, Query(max_length=4096, description="Path of the checkpoint, as the job lists it")]
Step = Annotated[int, Path(ge=0, lt=10**12, description="Step of the snapshot")]


@router.get("/jobs/{job_id}/snapshots")
def list_snapshots(state: AppStateDep, job: JobDep, run_dir: RunDirDep, params: PageParamsDep) -> SnapshotList:
    """List the committed snapshots of a job, latest first, and the policy by which they are taken."""
    mirror = None if job.spec.mirror is None else read_state(state.home, job.id)
    page = paginate(read_snapshots(run_dir.root, run_dir.snapshots), params, lambda snapshot: -snapshot.step)
    pinned = read_pins(run_dir.pins)
    snapshots = [
        SnapshotPublic(
            **asdict(snapshot),
            pinned=snapshot.step in pinned,
            mirrored=None if job.spec.mirror is None else mirror is not None and snapshot.step in mirror.steps,
        )
        for snapshot in page.items
    ]
    status = read_rank_zero_status(run_dir, max(attempt_numbers(run_dir), default=0))
    policy = None if status is None else status.snapshot_policy
    return SnapshotList(items=snapshots, next=page.next, policy=policy, copies=None if mirror is None else mirror.url)


@router.put("/jobs/{job_id}/snapshots/{step}/pin", status_code=204)
def pin_snapshot(job: JobDep, run_dir: RunDirDep, step: Step) -> None:
    """Pin a snapshot: it is kept until the job is deleted, whatever the job's policy."""
    if not actions.pin(run_dir, step):
        raise _unknown_snapshot(job, step)


@router.delete("/jobs/{job_id}/snapshots/{step}/pin", status_code=204)
def unpin_snapshot(run_dir: RunDirDep, step: Step) -> None:
    """Unpin a snapshot: the job's policy applies to it again."""
    actions.unpin(run_dir, step)


@router.get(
    "/jobs/{job_id}/snapshots/{step}/files.zip", response_class=Response, responses={200: {"content": {ZIP: {}}}}
)
def download_snapshot(job: JobDep, run_dir: RunDirDep, step: Step) -> Response:
    """Download a snapshot as a zip archive: unpacked into a snapshot directory, training can resume from it.

    `rekindle snapshots export` extracts the plain weights instead.
    """
    files = snapshot_files(run_dir.root, run_dir.snapshots, step)
    if files is None:
        raise _unknown_snapshot(job, step)
    members = [Member(f"{path.parent.name}/{path.name}", path) for path in files]
    archive = zip_stream(run_dir.root, members, compress=False, complete=True)
    return Download(archive, ZIP, headers=attachment(f"job-{job.number}-step-{step}.zip"))


@router.get("/jobs/{job_id}/checkpoint.zip", response_class=Response, responses={200: {"content": {ZIP: {}}}})
def download_checkpoint(job: JobDep, run_dir: RunDirDep, path: CheckpointPath) -> Response:
    """Download a checkpoint of the script's own as a zip archive."""
    found = _own_checkpoint(job, run_dir, path)
    if not found.path.startswith(f"{run_dir.root}/"):
        detail = f"{path} is outside of the job's directory, so it can only be copied on the machine that has it"
        raise ApiError(404, "not-found", detail)
    parent = FilePath(found.path).parent
    members = [Member(each.removeprefix(f"{parent}/"), FilePath(each)) for each in found.paths()]
    archive = zip_stream(run_dir.root, members, compress=False, complete=True)
    return Download(archive, ZIP, headers=attachment(f"job-{job.number}-checkpoint.zip"))


def require_checkpoint(job: Job, run_dir: RunDir, path: str) -> str:
    """The absolute path of the listed checkpoint ``path``. Raises ApiError where the job cannot resume from it."""
    _require_stopped(job)
    found = _own_checkpoint(job, run_dir, path)
    if not found.complete:
        raise ApiError(409, "damaged-snapshot", f"the checkpoint {path} is incomplete, so no job can resume from it")
    with suppress(PermissionError):  # then the keeper checks it, which runs as the job's user
        if not is_unchanged(found):
            detail = f"the checkpoint {path} was replaced or removed since it was listed; list the checkpoints again"
            raise ApiError(409, "files-changed", detail)
    return found.path


def _own_checkpoint(job: Job, run_dir: RunDir, path: str) -> Checkpoint:
    observed = read_record(run_dir.observed, Observations, run_dir.root) or Observations()
    for each in observed.checkpoints:
        if path in (each.path, shown_path(each.path, run_dir.code)):
            return each
    detail = (
        f"{quoted_label(job.name, job.number)} has no checkpoint {path!r} among the latest {MAX_CHECKPOINTS} "
        f"that its script wrote; `rekindle snapshots {job.number}` lists the latest of them"
    )
    raise ApiError(404, "unknown-snapshot", detail)


def _require_stopped(job: Job) -> None:
    held = job.state is JobState.QUEUED and job.intent is JobIntent.HOLD
    if job.state not in TERMINAL and not held:
        named = f"{quoted_label(job.name, job.number)} {STATE_PHRASES[job.state]}"
        detail = f"{named}; only a job that has ended or is held can resume from a chosen snapshot or checkpoint"
        raise ApiError(409, "wrong-state", detail)


def _unknown_snapshot(job: Job, step: int) -> ApiError:
    detail = f"{quoted_label(job.name, job.number)} has no snapshot of step {step}; GET …/snapshots lists its snapshots"
    return ApiError(404, "unknown-snapshot", detail)


def require_resumable(job: Job, run_dir: RunDir, step: int) -> None:
    """Check that the job can resume from the snapshot of ``step`` without losing a pinned one. Raises ApiError."""
    _require_stopped(job)
    snapshots = {snapshot.step: snapshot for snapshot in read_snapshots(run_dir.root, run_dir.snapshots)}
    if step not in snapshots:
        raise _unknown_snapshot(job, step)
    if not snapshots[step].verified:
        raise ApiError(409, "damaged-snapshot", f"the snapshot of step {step} of job {job.id} is damaged")
    pinned = [each for each in sorted(read_pins(run_dir.pins)) if each > step and each in snapshots]
    if pinned:
        detail = f"the later snapshot of step {pinned[0]} is pinned and would be quarantined: unpin it first"
        raise ApiError(409, "pinned-snapshot", detail)
