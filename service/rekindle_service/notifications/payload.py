"""What a notification about an event contains, and how its delivery to a channel ended. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Protocol

from rekindle.contract.states import HOLDING_SLOTS, JobState
from rekindle_service.config.notification_targets import EventType
from rekindle_service.store.tables import Attempt, Event, Job

_MAX_MESSAGE = 2000  # characters of a message
_OUTCOME = ("class", "message", "rank", "exit_code", "signal", "exception", "file", "line")
_JOB = (
    "id", "number", "name", "owner", "state", "attempt", "restarts", "world_size", "epoch", "epochs", "step", "steps",
)  # fmt: skip
_TYPE_OF_KIND = {
    "submitted": EventType.SUBMITTED,
    "stalled": EventType.STALLED,
    "preempt": EventType.PREEMPTED,
    "straggler": EventType.STRAGGLER,
    "chaos": EventType.FAULT_INJECTED,
    "snapshot_skipped": EventType.SNAPSHOT_SKIPPED,
}
_TYPE_OF_STATE: dict[str, EventType] = {
    JobState.RECOVERING: EventType.ATTEMPT_FAILED,
    JobState.SUCCEEDED: EventType.SUCCEEDED,
    JobState.FAILED: EventType.FAILED,
    JobState.CANCELLED: EventType.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Payload:
    """One event as it is delivered. ``id`` is the same at every try: a receiver recognises a repeat by it."""

    id: str
    type: EventType
    job_id: str
    body: bytes  # JSON, in ASCII


class DeliveryResult(Enum):
    DELIVERED = "delivered"
    RETRY = "retry"  # it may succeed later
    REJECTED = "rejected"  # it would be rejected again


@dataclass(frozen=True, slots=True)
class Delivery:
    """``reason`` is for the server's log: it holds no secret."""

    result: DeliveryResult
    reason: str = ""


class Channel(Protocol):
    """A webhook or a command."""

    def deliver(self, payload: Payload) -> Delivery: ...
    def close(self) -> None: ...


def event_type(event: Event) -> EventType | None:
    """The type that a channel subscribes to, or None for an event that none can subscribe to."""
    if event.kind != "state":
        return _TYPE_OF_KIND.get(event.kind)
    match event.to_state:
        case JobState.RUNNING:
            return EventType.RECOVERED if event.from_state == JobState.RECOVERING else EventType.STARTED
        case JobState.QUEUED:
            return EventType.DRAINED if event.from_state in HOLDING_SLOTS else None
        case other:
            return _TYPE_OF_STATE.get(other or "")


def build_payload(event: Event, kind: EventType, job: Job | None, attempts: Sequence[Attempt]) -> Payload:
    """``job`` and ``attempts`` as they are now; None for a job that has been deleted since."""
    identity = f"{event.job_id}-{event.id}"
    body: dict[str, Any] = {
        "id": identity,
        "event": kind.value,
        "at": datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "from_state": event.from_state,
        "to_state": event.to_state,
        "reason": event.reason[:_MAX_MESSAGE],
        "job": {name: getattr(job, name, None) for name in _JOB} | {"id": event.job_id},
        "outcome": _outcome(event, attempts),
    }
    return Payload(identity, kind, event.job_id, json.dumps(body).encode())


def _outcome(event: Event, attempts: Sequence[Attempt]) -> dict[str, Any] | None:
    """The outcome of the latest attempt that had ended by then."""
    ended = [each for each in attempts if each.ended_at is not None and each.ended_at <= event.at]
    if not ended or ended[-1].outcome is None:
        return None
    outcome = {name: ended[-1].outcome.get(name) for name in _OUTCOME}
    return outcome | {"message": str(outcome["message"])[:_MAX_MESSAGE]}
