"""What a notification about an event contains, and how its delivery to a channel ended. Pure."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.attempt_history import AttemptSummary
from rekindle.contract.states import HOLDING_SLOTS, JobState
from rekindle_service.config.notification_targets import EventType
from rekindle_service.sanitize import strip_control
from rekindle_service.store.tables import Event, Job

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
    "mirror_failed": EventType.MIRROR_FAILED,
}
_TYPE_OF_STATE: dict[str, EventType] = {
    JobState.RECOVERING: EventType.ATTEMPT_FAILED,
    JobState.SUCCEEDED: EventType.SUCCEEDED,
    JobState.FAILED: EventType.FAILED,
    JobState.CANCELLED: EventType.CANCELLED,
}
_STOPPED = {EventType.DRAINED: OutcomeClass.PREEMPTED, EventType.CANCELLED: OutcomeClass.CANCELLED}
_ENDS = {EventType.SUCCEEDED, EventType.FAILED, *_STOPPED}


@dataclass(frozen=True, slots=True)
class Payload:
    """One event as it is delivered. ``id`` is the same at every try: a receiver recognises a repeat by it."""

    id: str
    type: EventType
    job_id: str
    body: bytes  # JSON, in ASCII


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


def build_payload(event: Event, kind: EventType, job: Job | None, attempts: Sequence[AttemptSummary]) -> Payload:
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
        "outcome": _shown(_outcome(event, kind, job, attempts)),
    }
    return Payload(identity, kind, event.job_id, json.dumps(body).encode())


def probe_payload() -> Payload:
    """A payload that shows whether a channel works."""
    identity = f"test-{time.time_ns()}"
    reason = "a test by `rekindle doctor --notify`"
    body = {"id": identity, "event": EventType.TEST.value, "reason": reason, "job": {"name": "test", "number": 0}}
    return Payload(identity, EventType.TEST, "", json.dumps(body).encode())


def chat_message(payload: Payload, chat: str) -> bytes:
    """The payload as a message for people: ``digits (#12) failed: RuntimeError …``. Nobody is mentioned by it."""
    body = json.loads(payload.body)
    job, outcome = body["job"], body.get("outcome") or {}
    why = strip_control(outcome.get("message") or body["reason"])
    text = f"{job['name']} (#{job['number']}) {payload.type.value.replace('_', ' ')}: {why}"[:_MAX_MESSAGE]
    if chat == "slack":
        return json.dumps({"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}).encode()
    plain = re.sub(r"([\\*_~`|>])", r"\\\1", text)[:_MAX_MESSAGE]
    return json.dumps({"content": plain, "allowed_mentions": {"parse": []}}).encode()


def _outcome(
    event: Event, kind: EventType, job: Job | None, attempts: Sequence[AttemptSummary]
) -> dict[str, Any] | None:
    """How that ended which the event is about; for an event that ends nothing, the latest attempt that had ended.

    The row of the job has the outcome of its last end. A later attempt shows that it may be that of another end.
    """
    begun = [each for each in attempts if each.started_at <= event.at]
    if kind is EventType.ATTEMPT_FAILED:  # where the keeper was lost, the next one writes how the attempt ended
        known = begun[-1].outcome if begun else None
        return (known or Outcome(OutcomeClass.KEEPER_LOST, event.reason)).to_json()
    if kind in _ENDS and job is not None and job.state == event.to_state and len(begun) == len(attempts):
        return job.outcome
    ended = [each.outcome for each in begun if each.ended_at is not None and each.ended_at <= event.at]
    latest, stopped = ended[-1] if ended else None, _STOPPED.get(kind)
    if stopped is not None and (latest is None or latest.klass != stopped):  # between two attempts
        latest = Outcome(stopped, event.reason)
    return None if latest is None else latest.to_json()


def _shown(outcome: dict[str, Any] | None) -> dict[str, Any] | None:
    if outcome is None:
        return None
    return {name: outcome.get(name) for name in _OUTCOME} | {"message": str(outcome["message"])[:_MAX_MESSAGE]}
