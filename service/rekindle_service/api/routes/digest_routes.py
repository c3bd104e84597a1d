"""Digests of a job: the steps that have some, and from which step on two jobs are not the same."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from rekindle.contract.run_dir.attempt_history import AttemptSummary
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.api.auth import IdentityDep
from rekindle_service.api.dependencies import (
    AppState,
    AppStateDep,
    ChosenAttempt,
    JobAttempts,
    JobDep,
    RunDirDep,
    find_run_dir,
    readable_job,
)
from rekindle_service.api.worker_pools import DIGESTS
from rekindle_service.job_wording import quoted_label
from rekindle_service.jobs.difference_causes import ComparedRun, code_differences, find_causes, why_incomparable
from rekindle_service.jobs.step_diff import StepComparison, compare_steps, describe, notes
from rekindle_service.run_readers.digest_series import DigestSeries
from rekindle_service.schemas.digest_json import DigestedStepPublic, DigestedSteps, JobDiff
from rekindle_service.store.tables import Job

router = APIRouter(tags=["digests"])

_UNEXPLAINED = "Nothing recorded explains it: the script is not deterministic, or the device computed something else."
_NOT_DETERMINISTIC = "Both are replays of the same job: the script is not deterministic, from step {:,} on."


@router.get("/jobs/{job_id}/digests")
@DIGESTS.route
def list_digests(
    state: AppStateDep,
    job: JobDep,
    run_dir: RunDirDep,
    attempt: ChosenAttempt = None,
    after: Annotated[int, Query(ge=-1, le=1 << 31, description="Only steps after this one")] = -1,
    limit: Annotated[int, Query(ge=1, le=2000, description="Maximum number of steps")] = 500,
) -> DigestedSteps:
    """List the steps of which `rekindle.Run` has written digests, ascending."""
    series = DigestSeries(run_dir, _compared(state, job, run_dir, attempt).attempts)
    steps = [each for each in series.steps() if each.step > after]
    items = [DigestedStepPublic(**each._asdict(), ranks=len(series.at(each.step).ranks)) for each in steps[:limit]]
    return DigestedSteps(items=items, next=items[-1].step if len(steps) > limit else None)


@router.get("/jobs/{job_id}/diff/{other}")
@DIGESTS.route
def compare_trainings(
    state: AppStateDep,
    identity: IdentityDep,
    job: JobDep,
    run_dir: RunDirDep,
    other: Annotated[str, Path(max_length=64, description="Id of the job to compare with; it may be the same job")],
    attempt: ChosenAttempt = None,
    other_attempt: ChosenAttempt = None,
) -> JobDiff:
    """Find the first step at which two trainings differ: phase, ranks and tensors, and what can explain it.

    Digests of `rekindle.Run` are compared at the steps that both jobs have. Values of environment variables are never
    shown. `identical` and `different` are verdicts on the compared steps only.
    """
    second = readable_job(state, identity, other)
    one = _compared(state, job, run_dir, attempt)
    its = _compared(state, second, find_run_dir(state, second), other_attempt)
    series = DigestSeries(one.run_dir, one.attempts), DigestSeries(its.run_dir, its.attempts)
    found, code = compare_steps(*series), code_differences(one, its)
    causes = find_causes(one, its, code, found)
    if found.obstacle is None:
        summary = describe(found)
    else:
        steps = [[each.step for each in each_series.steps()] for each_series in series]
        summary = why_incomparable(found.obstacle, (one, steps[0]), (its, steps[1]))
    more = notes(found)
    if found.difference is not None and not causes:
        same = _plain_replay(job) is not None and _plain_replay(job) == _plain_replay(second)
        more.append(_NOT_DETERMINISTIC.format(found.difference.step) if same else _UNEXPLAINED)
    if not all(each.complete for each in series):
        more.append("The files of digests are too large: only what is at their beginning was compared.")
    return JobDiff(
        verdict=found.verdict,
        summary=summary,
        notes=more,
        equal_steps=len(found.steps),
        last_equal_step=found.steps[-1] if found.steps else None,
        difference=found.difference,
        logged=found.logged,
        causes=causes,
        code=code,
        next_command=_next_command(job, second, found),
    )


def _compared(state: AppState, job: Job, run_dir: RunDir, attempt: int | None) -> ComparedRun:
    """The job, or one attempt of it. Raises ApiError (404) where it has no such attempt."""
    numbers = JobAttempts(state, job, run_dir).chosen(attempt)
    known = {each.number: each for each in state.store.attempts(job.id)}
    attempts = [known.get(number) or AttemptSummary(number) for number in numbers]
    return ComparedRun(quoted_label(job.name, job.number), job.spec, run_dir, attempts)


def _plain_replay(job: Job) -> str | None:
    """The job that this one repeats, if it does nothing else."""
    replay = job.spec.replay
    return None if replay is None or replay.hook or replay.pdb else replay.job


def _next_command(one: Job, other: Job, found: StepComparison) -> str | None:
    """What finds the differing step among those that do not have digests of both."""
    gap = found.gap
    if len(gap) < 2:
        return None
    if one.id != other.id:
        return f"rekindle diff {one.number} {other.number} --replay"
    return f"rekindle replay {one.number} --step {gap[0]} --until {gap[-1]}"
