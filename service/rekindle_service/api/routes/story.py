"""What happened to a job, for people."""

from fastapi import APIRouter

from rekindle.contract.outcome import Outcome
from rekindle_service.api.dependencies import AppStateDep, AttemptNumber, JobDep, ReadableBy, RunDirDep, find_attempt
from rekindle_service.jobs.job_story import SameError, Story, read_story

router = APIRouter(tags=["attempts"])


@router.get("/jobs/{job_id}/story")
def read_job_story(
    state: AppStateDep, job: JobDep, run_dir: RunDirDep, readable_by: ReadableBy, attempt: AttemptNumber = None
) -> Story:
    """Explain what happened to a job: the cause, the rank and the lines of code, and what to do next.

    By default of the job as it is now; with `attempt`, of that attempt.
    """
    attempts = state.store.attempts(job.id)
    if attempt is not None and attempt not in [each.number for each in attempts]:
        find_attempt(job, run_dir, attempt)

    def same_error(outcome: Outcome) -> list[SameError]:
        found = state.store.lists.failed_alike(job.id, outcome, readable_by=readable_by)
        return [SameError(each.id, each.number, each.name) for each in found]

    return read_story(job, attempts, run_dir, attempt, same_error)
