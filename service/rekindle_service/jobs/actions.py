"""What a person may ask of a job: cancel, drain, resume. Writes wishes into rows; the engine acts on them."""

from rekindle.contract.states import TERMINAL, JobIntent, JobState
from rekindle_service.store import Store
from rekindle_service.store.tables import Job


def cancel(store: Store, job_id: str) -> Job | None:
    """Stop the job for good. Changes nothing on a job that is over. None where there is no such job."""
    job = store.job(job_id)
    if job is None or job.state in TERMINAL:
        return job
    return store.set_intent(job_id, JobIntent.CANCEL)


def drain(store: Store, job_id: str) -> Job | None:
    """Have the job save, give its slots back and stay in the queue, held. Changes nothing on a job that is over."""
    job = store.job(job_id)
    if job is None or job.state in TERMINAL:
        return job
    return store.set_intent(job_id, JobIntent.HOLD if job.state is JobState.QUEUED else JobIntent.DRAIN)


def resume(store: Store, job_id: str) -> Job | None:
    """Release a held job, or send one that is over back to the queue, to go on from its newest snapshot.

    A wish to cancel or drain that was not carried out yet is taken back.
    """
    released = _requeue(store, job_id, {}) or store.set_intent(job_id, JobIntent.RUN)
    if released is not None and released.state in TERMINAL:  # it ended between the two
        return _requeue(store, job_id, {}) or released
    return released


def resume_from(store: Store, job: Job, step: int) -> Job | None:
    """Like ``resume``, from an older snapshot: the next run sets the newer ones aside before it begins.

    Precondition: the job is over, or waits in the queue. None where it has moved on meanwhile.
    """
    rewind = {"run": job.run + 1, "step": step}
    if job.state in TERMINAL:
        return _requeue(store, job.id, rewind, snapshot_step=step)
    return store.rewind_queued(job.id, rewind)


def _requeue(store: Store, job_id: str, rewind: dict[str, int], **columns: int) -> Job | None:
    """None where the job is not over."""
    return store.transition(
        job_id,
        JobState.QUEUED,
        expected=TERMINAL,
        reason="resumed by a person",
        intent=JobIntent.RUN,
        ended_at=None,
        outcome=None,
        notice=None,
        rewind=rewind,
        **columns,
    )
