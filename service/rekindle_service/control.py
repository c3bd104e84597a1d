"""What a person may ask of a job: cancel, drain, resume. Writes wishes into rows; the engine acts on them."""

from rekindle_service.rows import Job
from rekindle_service.states import TERMINAL, JobIntent, JobState
from rekindle_service.store import Store


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
    requeued = store.transition(
        job_id,
        JobState.QUEUED,
        expected=TERMINAL,
        reason="resumed by a person",
        intent=JobIntent.RUN,
        ended_at=None,
        outcome=None,
        notice=None,
    )
    return requeued or store.set_intent(job_id, JobIntent.RUN)
