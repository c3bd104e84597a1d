"""The snapshots of a job: list them, keep one for good, and whether a job can go back to one."""

from typing import Annotated

from fastapi import APIRouter, Path

from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.pins import read_pins
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.api.lookup import KnownJob, KnownRunDir
from rekindle_service.api.pieces import WantedPiece
from rekindle_service.api.problems import ProblemError
from rekindle_service.api.schemas import SnapshotList, SnapshotPublic
from rekindle_service.jobs import actions
from rekindle_service.run_readers.ranks import read_attempts, read_status
from rekindle_service.run_readers.snapshots import SnapshotInfo, read_snapshots
from rekindle_service.store.tables import Job

router = APIRouter(tags=["snapshots"])

_REPORTING_RANK = 0
_RESUMABLE = frozenset({JobState.FAILED, JobState.CANCELLED})

Step = Annotated[int, Path(ge=0, lt=10**12, description="Step of the snapshot")]


@router.get("/jobs/{job_id}/snapshots")
def list_snapshots(run_dir: KnownRunDir, piece: WantedPiece) -> SnapshotList:
    """The committed snapshots, newest first, and how often they are taken."""
    pinned = read_pins(run_dir.pins)
    found, following = piece.of(read_snapshots(run_dir.root, run_dir.snapshots), lambda info: -info.step)
    latest = max(read_attempts(run_dir), default=0)
    status = read_status(run_dir.root, run_dir.attempt(latest).rank(_REPORTING_RANK))
    return SnapshotList(
        items=[_public(info, pinned) for info in found],
        next=following,
        snapshot_policy=None if status is None else status.snapshot_policy,
    )


def _public(info: SnapshotInfo, pinned: frozenset[int]) -> SnapshotPublic:
    told = {field: getattr(info, field) for field in SnapshotPublic.model_fields if field != "pinned"}
    return SnapshotPublic(**told, pinned=info.step in pinned)


@router.put("/jobs/{job_id}/snapshots/{step}/pin", status_code=204)
def pin_snapshot(job: KnownJob, run_dir: KnownRunDir, step: Step) -> None:
    """Keep a snapshot for good, whatever the job's rules say: only deleting the job removes it."""
    if not actions.pin(run_dir, step):
        raise unknown_snapshot(job, step)


@router.delete("/jobs/{job_id}/snapshots/{step}/pin", status_code=204)
def unpin_snapshot(run_dir: KnownRunDir, step: Step) -> None:
    """Leave a snapshot to the job's rules again."""
    actions.unpin(run_dir, step)


def unknown_snapshot(job: Job, step: int) -> ProblemError:
    detail = f"job {job.id} has no snapshot of step {step} (any more); GET …/snapshots lists those there are"
    return ProblemError(404, "unknown-snapshot", detail)


def require_rewindable(job: Job, run_dir: RunDir, step: int) -> None:
    """That the job can go on from the snapshot of ``step`` and nothing is lost by it. Raises ProblemError."""
    held = job.state is JobState.QUEUED and job.intent is JobIntent.HOLD
    if job.state not in _RESUMABLE and not held:
        detail = f"job {job.id} is {job.state}; only a failed, cancelled or held one can go back to a snapshot"
        raise ProblemError(409, "wrong-state", detail)
    snapshots = {info.step: info for info in read_snapshots(run_dir.root, run_dir.snapshots)}
    if step not in snapshots:
        raise unknown_snapshot(job, step)
    if not snapshots[step].verified:
        raise ProblemError(409, "damaged-snapshot", f"the snapshot of step {step} of job {job.id} is damaged")
    pinned = [each for each in sorted(read_pins(run_dir.pins)) if each > step and each in snapshots]
    if pinned:
        detail = f"the newer snapshot of step {pinned[0]} is pinned and would be set aside: take its pin off first"
        raise ProblemError(409, "pinned-snapshot", detail)
