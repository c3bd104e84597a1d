"""JSON of digests and of the comparison of two jobs by them."""

from rekindle_service.jobs.difference_causes import Cause
from rekindle_service.jobs.packaging.code_manifest import FileDifference
from rekindle_service.jobs.step_diff import StepDifference, Verdict
from rekindle_service.schemas.fields import ApiModel


class DigestedStepPublic(ApiModel):
    """A step with digests: what the training was after it, in bits."""

    step: int
    """Number of the step."""
    attempt: int
    """Attempt that trained it; the latest where several did."""
    epoch: int
    """Epoch of the step."""
    ranks: int
    """Number of ranks with a digest."""


class DigestedSteps(ApiModel):
    """Page of the steps with digests. Send `next` as `after` to get the page that follows."""

    items: list[DigestedStepPublic]
    """Steps of this page, ascending."""
    next: int | None
    """Last step of this page; null on the last page."""


class JobDiff(ApiModel):
    """Where two trainings are not the same any more, in what, and what can explain it."""

    verdict: Verdict
    """`identical`, `different`, or `incomparable`."""
    summary: str
    """The verdict in a sentence."""
    notes: list[str]
    """What else is known of the comparison, each in a sentence."""
    equal_steps: int
    """Number of common steps that are equal, up to the first that differs."""
    last_equal_step: int | None
    """The last of them; null where there is none."""
    difference: StepDifference | None
    """The first common step that differs; null where none does."""
    logged: list[str]
    """Logged values that differ although the training is the same, such as a speed."""
    causes: list[Cause]
    """In what the jobs differ otherwise; empty where nothing is on record."""
    code: list[FileDifference]
    """Files that the other job has changed, with a few kilobytes of the lines; at most 50."""
    next_command: str | None
    """Command that finds the step among those without digests; null where there are none."""
