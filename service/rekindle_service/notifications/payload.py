"""What is told about an event. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rekindle.contract.states import HOLDING_SLOTS, JobState
from rekindle_service.config.notification_targets import EventType
from rekindle_service.store.tables import Attempt, Event, Job

_LONGEST = 2000  # characters of a message
_OUTCOME = ("class", "message", "rank", "exit_code", "signal", "exception", "file", "line")
_JOB = ("id", "number", "name", "state", "attempt", "restarts", "world_size", "epoch", "epochs", "step", "steps")
_REMARKS = {
    "submitted": EventType.SUBMITTED,
    "straggler": EventType.STRAGGLER,
    "chaos": EventType.FAULT_INJECTED,
    "snapshot_skipped": EventType.SNAPSHOT_SKIPPED,
}
_ARRIVALS: dict[str, EventType] = {
    JobState.RECOVERING: EventType.ATTEMPT_FAILED,
    JobState.SUCCEEDED: EventType.SUCCEEDED,
    JobState.FAILED: EventType.FAILED,
    JobState.CANCELLED: EventType.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Payload:
    """One event on its way to a receiver. ``id`` is the same at every try: a repeat can be told from news."""

    id: str
    happening: EventType
    job_id: str
    body: bytes  # JSON, in ASCII


def happening(event: Event) -> EventType | None:
    """What a person would call the event, or None for what nobody asks to be told."""
    if event.kind != "state":
        return _REMARKS.get(event.kind)
    match event.to_state:
        case JobState.RUNNING:
            return EventType.RECOVERED if event.from_state == JobState.RECOVERING else EventType.STARTED
        case JobState.QUEUED:
            return EventType.DRAINED if event.from_state in HOLDING_SLOTS else None
        case other:
            return _ARRIVALS.get(other or "")


def notice(event: Event, what: EventType, job: Job | None, attempts: Sequence[Attempt]) -> Payload:
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
    return Payload(identity, what, event.job_id, json.dumps(told).encode())


def _outcome(event: Event, attempts: Sequence[Attempt]) -> dict[str, Any] | None:
    """How the newest attempt ended that had ended when it happened."""
    ended = [each for each in attempts if each.ended_at is not None and each.ended_at <= event.at]
    if not ended or ended[-1].outcome is None:
        return None
    outcome = {name: ended[-1].outcome.get(name) for name in _OUTCOME}
    return outcome | {"message": str(outcome["message"])[:_LONGEST]}
