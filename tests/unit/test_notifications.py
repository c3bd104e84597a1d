"""What is told, to whom, signed how, and what is made of the answer."""

import hashlib
import hmac
import json
from typing import Any

import pytest
from pydantic import ValidationError

from job_examples import a_job
from rekindle_service.config.notification_targets import EventType, NotificationTarget
from rekindle_service.config.settings import Settings
from rekindle_service.notifications.command_hook import hook_environment
from rekindle_service.notifications.payload import DeliveryResult, build_payload, event_type
from rekindle_service.notifications.webhook import delivery_of, signature
from rekindle_service.store.tables import Attempt, Event

_SECRET = "a secret of the tests"


def event(kind: str = "state", **columns: Any) -> Event:
    return Event(**{"id": 7, "job_id": "abcdefghij", "at": 1000.0, "kind": kind, **columns})


@pytest.mark.parametrize(
    ("from_state", "to_state", "told"),
    [
        ("starting", "running", EventType.STARTED),
        ("running", "recovering", EventType.ATTEMPT_FAILED),
        ("recovering", "running", EventType.RECOVERED),
        ("running", "succeeded", EventType.SUCCEEDED),
        ("recovering", "failed", EventType.FAILED),
        ("queued", "cancelled", EventType.CANCELLED),
        ("running", "queued", EventType.DRAINED),
        ("failed", "queued", None),  # resumed by a person, who knows
        ("queued", "starting", None),
    ],
)
def test_a_change_of_state_is_told_by_the_name_that_a_person_has_for_it(
    from_state: str, to_state: str, told: EventType | None
) -> None:
    assert event_type(event(from_state=from_state, to_state=to_state)) is told


def test_remarks_are_told_and_wishes_are_not() -> None:
    assert event_type(event("straggler")) is EventType.STRAGGLER
    assert event_type(event("chaos")) is EventType.FAULT_INJECTED
    assert event_type(event("intent")) is None
    assert event_type(event("something of a newer version")) is None
    assert event_type(event(from_state="running", to_state="of a newer version")) is None


def test_a_notice_names_job_reason_and_the_outcome_of_the_attempt_that_ended_then() -> None:
    def attempt(number: int, ended_at: float | None, message: str) -> Attempt:
        outcome = None if ended_at is None else {"class": "oom", "message": message, "evidence": {"env": "s3cr3t"}}
        return Attempt(job_id="abcdefghij", number=number, run=1, started_at=1.0, ended_at=ended_at, outcome=outcome)

    attempts = [attempt(1, 900.0, "first"), attempt(2, 999.0, "x" * 9999), attempt(3, 2000.0, "later")]
    failed = event(from_state="running", to_state="recovering", reason="\x1b[2Jagain")
    job = a_job(id="abcdefghij", name="digits\n", env={"KEY": "s3cr3t"})
    told = build_payload(failed, EventType.ATTEMPT_FAILED, job, attempts)
    body = json.loads(told.body)
    assert (body["id"], body["event"], body["at"]) == ("abcdefghij-7", "attempt_failed", "1970-01-01T00:16:40.000Z")
    assert (body["job"]["name"], body["reason"]) == ("digits\n", "\x1b[2Jagain")
    assert body["outcome"]["class"] == "oom"
    assert len(body["outcome"]["message"]) == 2000
    assert told.body.isascii()
    assert b"\x1b" not in told.body
    assert b"s3cr3t" not in told.body


def test_a_job_that_was_deleted_meanwhile_is_told_by_its_id() -> None:
    body = json.loads(build_payload(event(to_state="failed"), EventType.FAILED, None, []).body)
    assert (body["job"]["id"], body["job"]["name"], body["outcome"]) == ("abcdefghij", None, None)


def test_the_signature_covers_the_moment_and_the_body() -> None:
    headers = signature(_SECRET.encode(), b"{}", 1700000000)
    proof = hmac.new(_SECRET.encode(), b"1700000000.{}", hashlib.sha256).hexdigest()
    assert headers == {"Rekindle-Timestamp": "1700000000", "Rekindle-Signature": f"sha256={proof}"}
    assert signature(_SECRET.encode(), b"{}", 1700000001) != headers


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        *((status, "DELIVERED") for status in (200, 204)),
        *((status, "REJECTED") for status in (302, 404, 410)),
        *((status, "RETRY") for status in (408, 429, 500, 503)),
    ],
)
def test_an_answer_says_whether_trying_again_makes_sense(status: int, verdict: str) -> None:
    assert delivery_of(status).result is DeliveryResult[verdict]


def test_a_hook_gets_the_event_and_none_of_the_servers_settings() -> None:
    told = build_payload(event(to_state="failed"), EventType.FAILED, None, [])
    environment = hook_environment(told, {"PATH": "/bin", "REKINDLE_TOKEN": "s", "REKINDLE_NOTIFY": "s"})
    assert environment.keys() == {
        "PATH",
        "REKINDLE_EVENT",
        "REKINDLE_EVENT_ID",
        "REKINDLE_EVENT_JSON",
        "REKINDLE_JOB_ID",
    }
    assert json.loads(environment["REKINDLE_EVENT_JSON"])["event"] == environment["REKINDLE_EVENT"] == "failed"


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({}, "exactly one of url and command"),
        ({"url": "https://a.example", "command": ["/bin/true"]}, "exactly one of url and command"),
        ({"url": "https://a.example"}, "a secret of at least 16 characters"),
        ({"url": "https://a.example", "secret": "short"}, "a secret of at least 16 characters"),
        ({"url": "file:///etc/passwd", "secret": _SECRET}, "https://"),
        ({"url": "https://", "secret": _SECRET}, "name a host"),
        ({"command": ["mail"]}, "absolute path"),
        ({"command": []}, "absolute path"),
        ({"command": ["/bin/true"], "events": ["exploded"]}, "'submitted', 'started'"),
        ({"command": ["/bin/true"], "time_limit": 0}, "greater than 0"),
        ({"command": ["/bin/true"], "shell": True}, "not permitted"),
    ],
)
def test_a_wrong_receiver_is_refused_with_the_rule(target: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        NotificationTarget.model_validate(target)


def test_a_secret_is_in_no_representation() -> None:
    target = NotificationTarget(url="https://hooks.example/T0/s3cr3t?key=s3cr3t", secret=_SECRET)
    assert _SECRET not in repr(target) + str(target.model_dump()) + target.label + target.key
    assert "s3cr3t" not in target.label + target.key
    assert "hooks" not in repr(Settings(notify=(target,)))


def test_a_receiver_is_named_once() -> None:
    twice = NotificationTarget(command=("/bin/true",))
    with pytest.raises(ValidationError, match="names a receiver twice"):
        Settings(notify=(twice, twice.model_copy(update={"events": (EventType.FAILED,)})))
