"""What is told about an event. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rekindle_service.notification_targets import Happening
from rekindle_service.rows import Attempt, Event, Job
from rekindle_service.states import HOLDING_SLOTS, JobState

_LONGEST = 2000  # characters of a message
_OUTCOME = ("class", "message", "rank", "exit_code", "signal", "exception", "file", "line")
_JOB = ("id", "number", "name", "state", "attempt", "restarts", "world_size", "epoch", "epochs", "step", "steps")
_REMARKS = {
    "submitted": Happening.SUBMITTED,
    "straggler": Happening.STRAGGLER,
    "chaos": Happening.FAULT_INJECTED,
    "snapshot_skipped": Happening.SNAPSHOT_SKIPPED,
}
_ARRIVALS: dict[str, Happening] = {
    JobState.RECOVERING: Happening.ATTEMPT_FAILED,
    JobState.SUCCEEDED: Happening.SUCCEEDED,
    JobState.FAILED: Happening.FAILED,
    JobState.CANCELLED: Happening.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Notice:
    """One event on its way to a receiver. ``id`` is the same at every try: a repeat can be told from news."""

    id: str
    happening: Happening
    job_id: str
    body: bytes  # JSON, in ASCII


def happening(event: Event) -> Happening | None:
    """What a person would call the event, or None for what nobody asks to be told."""
    if event.kind != "state":
        return _REMARKS.get(event.kind)
    match event.to_state:
        case JobState.RUNNING:
            return Happening.RECOVERED if event.from_state == JobState.RECOVERING else Happening.STARTED
        case JobState.QUEUED:
            return Happening.DRAINED if event.from_state in HOLDING_SLOTS else None
        case other:
            return _ARRIVALS.get(other or "")


def notice(event: Event, what: Happening, job: Job | None, attempts: Sequence[Attempt]) -> Notice:
    """``job`` and ``attempts`` as they are now; None for a job that has been deleted since."""
    identity = f"{event.job_id}-{event.id}"
    told: dict[str, Any] = {
        "id": identity,
        "event": what.value,
        "at": datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "from_state": event.from_state,
        "to_state": event.to_state,
        "reason": event.reason[:_LONGEST],
        "job": {name: getattr(job, name, None) for name in _JOB} | {"id": event.job_id},
        "outcome": _outcome(event, attempts),
    }
    return Notice(identity, what, event.job_id, json.dumps(told).encode())


def _outcome(event: Event, attempts: Sequence[Attempt]) -> dict[str, Any] | None:
    """How the newest attempt ended that had ended when it happened."""
    ended = [each for each in attempts if each.ended_at is not None and each.ended_at <= event.at]
    if not ended or ended[-1].outcome is None:
        return None
    outcome = {name: ended[-1].outcome.get(name) for name in _OUTCOME}
    return outcome | {"message": str(outcome["message"])[:_LONGEST]}
