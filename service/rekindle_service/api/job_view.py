"""Rows as the outside sees them."""

from rekindle_service.api.schemas import AttemptPublic, Cadence, EventPublic, JobPublic, Ranks, Target, speakable
from rekindle_service.rows import Attempt, Event, Job

_HIDDEN = "•••"


def job_public(job: Job) -> JobPublic:
    """A job without its secrets: no value of ``env`` leaves the server, since any of them may be a key."""
    columns = job.model_dump(include=set(JobPublic.model_fields))
    return JobPublic.model_validate(
        {
            **columns,
            "code": speakable(job.code),
            "args": speakable(job.args),
            "env": dict.fromkeys(job.env, _HIDDEN),
            "outcome": speakable(job.outcome),
            "ranks": Ranks(min=job.min_ranks, max=job.max_ranks),
            "snapshot": Cadence.model_validate(job.cadence),
            "target": Target(kind=job.kind, value=job.target),
        }
    )


def attempt_public(attempt: Attempt) -> AttemptPublic:
    columns = attempt.model_dump(include=set(AttemptPublic.model_fields))
    state = "running" if attempt.ended_at is None else "ended"
    return AttemptPublic.model_validate({**columns, "state": state, "outcome": speakable(attempt.outcome)})


def event_public(event: Event) -> EventPublic:
    return EventPublic.model_validate(event.model_dump(include=set(EventPublic.model_fields)))
