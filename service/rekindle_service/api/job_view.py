"""Rows as the outside sees them."""

from collections.abc import Sequence

from rekindle.contract.run_dir.attempt_history import replayed_steps
from rekindle_service.api.schemas import AttemptPublic, EventPublic, JobPublic, speakable
from rekindle_service.store.tables import Attempt, Event, Job

_HIDDEN = "•••"


def job_public(job: Job) -> JobPublic:
    """A job without its secrets: no value of ``env`` leaves the server, since any of them may be a key."""
    spec = job.spec.to_json()
    columns = job.model_dump(include=set(JobPublic.model_fields))
    return JobPublic.model_validate(
        {
            **speakable(spec),
            **columns,
            "env": dict.fromkeys(spec["env"], _HIDDEN),
            "outcome": speakable(job.outcome),
            "ranks": {"min": spec["min_ranks"], "max": spec["max_ranks"]},
            "target": {"kind": spec["kind"], "value": spec["target"]},
        }
    )


def attempts_public(attempts: Sequence[Attempt]) -> list[AttemptPublic]:
    """All attempts of a job: how many steps of one were replayed follows from those after it."""
    replayed = replayed_steps(attempts)
    return [_attempt_public(attempt, replayed[attempt.number]) for attempt in attempts]


def _attempt_public(attempt: Attempt, replayed: int | None) -> AttemptPublic:
    columns = attempt.model_dump(include=set(AttemptPublic.model_fields))
    more = {"state": "running" if attempt.ended_at is None else "ended", "replayed_steps": replayed}
    return AttemptPublic.model_validate({**columns, **more, "outcome": speakable(attempt.outcome)})


def event_public(event: Event) -> EventPublic:
    return EventPublic.model_validate(event.model_dump(include=set(EventPublic.model_fields)))
