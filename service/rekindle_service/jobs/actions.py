"""Actions on a job: cancel, drain, resume, pin a snapshot. The reconciler acts on the intents written here."""

import time
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.snapshot_dir import read_pins, write_pins
from rekindle.contract.states import TERMINAL, JobIntent, JobState
from rekindle_service.run_readers.stored_snapshots import snapshot_files
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

_RESUMED = "resumed on request"
_REQUEUED: Mapping[str, Any] = {"ended_at": None, "outcome": None, "notice": None, "intent": JobIntent.RUN}
_PIN_TIMEOUT = 1.0  # seconds within which a snapshot that was being moved away comes back
SNAPSHOTS_LOCK = Lock()
"""Held while a snapshot is pinned, chosen for a resume, or removed by retention."""


def cancel(store: Store, job_id: str) -> Job | None:
    """Stop the job for good. Does nothing to a job that has ended. None where there is no such job."""
    job = store.job(job_id)
    if job is None or job.state in TERMINAL:
        return job
    return store.set_intent(job_id, JobIntent.CANCEL)


def cancel_all(store: Store, job_ids: Sequence[str]) -> None:
    """Stop each of these jobs for good."""
    store.set_intents(job_ids, JobIntent.CANCEL)


def drain(store: Store, job_id: str) -> Job | None:
    """Save a snapshot, release the slots and return to the queue, held. Does nothing to a job that has ended."""
    job = store.job(job_id)
    if job is None or job.state in TERMINAL:
        return job
    return store.set_intent(job_id, JobIntent.HOLD if job.state is JobState.QUEUED else JobIntent.DRAIN)


def resume(store: Store, job_id: str) -> Job | None:
    """Release a held job, or requeue one that has ended, to continue from its latest snapshot.

    A request to cancel or drain that has not taken effect yet is withdrawn.
    """
    released = _requeue(store, job_id, {}) or store.set_intent(job_id, JobIntent.RUN)
    if released is not None and released.state in TERMINAL:  # it ended between the two
        return _requeue(store, job_id, {}) or released
    return released


def resume_all(store: Store, job_ids: Sequence[str]) -> None:
    """Requeue each of these jobs that has ended, to continue from its latest snapshot."""
    columns = {**_REQUEUED, "rewind": {}}
    store.transition_all(job_ids, JobState.QUEUED, expected=TERMINAL, reason=_RESUMED, **columns)


def resume_from(store: Store, job: Job, chosen: int | str) -> Job | None:
    """Like ``resume``, from the snapshot of a step, or from the script's own checkpoint at a path.

    The next run puts the later ones aside before it begins. Precondition: the job has ended or is queued. None where
    its state has changed meanwhile.
    """
    is_step = isinstance(chosen, int)
    rewind = {"run": job.run + 1, "step" if is_step else "path": chosen}
    columns = {"snapshot_step": chosen} if is_step else {}
    if job.state in TERMINAL:
        return _requeue(store, job.id, rewind, **columns)
    return store.rewind_queued(job.id, rewind, **columns)


def _requeue(store: Store, job_id: str, rewind: dict[str, Any], **columns: Any) -> Job | None:
    """None where the job has not ended."""
    columns = {**_REQUEUED, "rewind": rewind, **columns}
    return store.transition(job_id, JobState.QUEUED, expected=TERMINAL, reason=_RESUMED, **columns)


def pin(run_dir: RunDir, step: int) -> bool:
    """Keep the snapshot of ``step`` for good; False where there is none (any more).

    The training moves a snapshot away, checks once more whether it is pinned, and only then deletes it. So it either
    finds this pin and moves the snapshot back, or had moved it away before the pin was written: then it is gone.
    """
    with SNAPSHOTS_LOCK:
        pinned = read_pins(run_dir.pins)
        write_pins(run_dir.pins, pinned | {step})
        deadline = time.monotonic() + _PIN_TIMEOUT
        while snapshot_files(run_dir.root, run_dir.snapshots, step) is None:
            if time.monotonic() > deadline:
                write_pins(run_dir.pins, pinned - {step})
                return False
            time.sleep(0.02)
        return True


def unpin(run_dir: RunDir, step: int) -> None:
    """Let the job's snapshot policy apply to the snapshot again, from its next snapshot on."""
    with SNAPSHOTS_LOCK:
        write_pins(run_dir.pins, read_pins(run_dir.pins) - {step})
