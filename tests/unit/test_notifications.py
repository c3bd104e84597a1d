"""Which events are notified, to whom, how they are signed, and what follows from the answer."""

import hashlib
import hmac
import json
from typing import Any

import pytest
from pydantic import ValidationError

from job_examples import a_job
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle_service.config.notification_targets import EventType, NotificationTarget
from rekindle_service.config.settings import Settings
from rekindle_service.notifications.channels import DeliveryResult, delivery_of, hook_environment, signature
from rekindle_service.notifications.payload import build_payload, chat_message, event_type
from rekindle_service.store.tables import Event

_SECRET = "a secret of the tests"


def event(kind: str = "state", **columns: Any) -> Event:
    return Event(**{"id": 7, "job_id": "abcdefghij", "at": 1000.0, "kind": kind, **columns})


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"kind": "straggler"}, EventType.STRAGGLER),
        ({"kind": "preempt"}, EventType.PREEMPTED),
        ({"kind": "chaos"}, EventType.FAULT_INJECTED),
        ({"kind": "intent"}, None),
        ({"kind": "something of a later version"}, None),
        ({"from_state": "running", "to_state": "of a later version"}, None),
        ({"from_state": "starting", "to_state": "running"}, EventType.STARTED),
        ({"from_state": "running", "to_state": "recovering"}, EventType.ATTEMPT_FAILED),
        ({"from_state": "recovering", "to_state": "running"}, EventType.RECOVERED),
        ({"from_state": "running", "to_state": "succeeded"}, EventType.SUCCEEDED),
        ({"from_state": "recovering", "to_state": "failed"}, EventType.FAILED),
        ({"from_state": "queued", "to_state": "cancelled"}, EventType.CANCELLED),
        ({"from_state": "running", "to_state": "queued"}, EventType.DRAINED),
        ({"from_state": "failed", "to_state": "queued"}, None),  # resumed by a person, who knows it
        ({"from_state": "queued", "to_state": "starting"}, None),
    ],
)
def test_an_event_is_notified_by_the_name_that_a_person_has_for_it(
    columns: dict[str, str], expected: EventType | None
) -> None:
    assert event_type(event(**columns)) is expected


def attempt(number: int, ended_at: float | None, message: str = "", klass: str = "oom") -> AttemptInfo:
    """One that has taken 50 seconds, or that began at 990 and runs."""
    if ended_at is None:
        return AttemptInfo(number, run=1, started_at=990.0)
    outcome = Outcome(OutcomeClass(klass), message, evidence={"env": "s3cr3t"})
    return AttemptInfo(number, run=1, started_at=ended_at - 50, ended_at=ended_at, outcome=outcome)


_FAILED_BEFORE = attempt(1, 900.0, "earlier")


@pytest.mark.parametrize(
    ("to_state", "attempts", "row", "expected"),
    [
        ("recovering", [_FAILED_BEFORE, attempt(2, None)], None, ("keeper_lost", "reason")),
        ("recovering", [_FAILED_BEFORE, attempt(2, 1003.0, "later known")], None, ("oom", "later known")),
        ("queued", [_FAILED_BEFORE], ("queued", "preempted"), ("preempted", "row")),
        ("queued", [], ("queued", "preempted"), ("preempted", "row")),
        ("queued", [_FAILED_BEFORE], ("starting", "preempted"), ("preempted", "reason")),
        ("queued", [attempt(1, 999.0, "saved", "preempted"), attempt(2, 2000.0)], None, ("preempted", "saved")),
        ("cancelled", [_FAILED_BEFORE], None, ("cancelled", "reason")),
        ("failed", [_FAILED_BEFORE], ("failed", "launch_error"), ("launch_error", "row")),
        ("failed", [_FAILED_BEFORE, attempt(2, 2000.0)], ("failed", "oom"), ("oom", "earlier")),
        ("running", [_FAILED_BEFORE, attempt(2, None)], ("running", "oom"), ("oom", "earlier")),
    ],
)
def test_a_notice_has_the_outcome_of_its_own_event(
    to_state: str, attempts: list[AttemptInfo], row: tuple[str, str] | None, expected: tuple[str, str]
) -> None:
    job = None
    if row is not None:
        job = a_job(id="abcdefghij", state=row[0], outcome={"class": row[1], "message": "row"})
    happened = event(
        from_state="recovering" if to_state == "running" else "running", to_state=to_state, reason="reason"
    )
    kind = event_type(happened)
    assert kind is not None
    outcome = json.loads(build_payload(happened, kind, job, attempts).body)["outcome"]
    assert (outcome["class"], outcome["message"]) == expected


def test_a_notice_names_job_reason_and_the_outcome_of_the_attempt_that_ended_then() -> None:
    attempts = [attempt(1, 900.0, "first"), attempt(2, 999.0, "x" * 9999), attempt(3, 2000.0, "later")]
    failed = event(from_state="running", to_state="recovering", reason="\x1b[2Jagain")
    job = a_job(id="abcdefghij", name="digits\n", owner="ann", env={"KEY": "s3cr3t"})
    payload = build_payload(failed, EventType.ATTEMPT_FAILED, job, attempts)
    body = json.loads(payload.body)
    assert (body["id"], body["event"], body["at"]) == ("abcdefghij-7", "attempt_failed", "1970-01-01T00:16:40.000Z")
    assert (body["job"]["name"], body["job"]["owner"], body["reason"]) == ("digits\n", "ann", "\x1b[2Jagain")
    assert body["outcome"]["class"] == "oom"
    assert len(body["outcome"]["message"]) == 2000
    assert payload.body.isascii()
    assert b"\x1b" not in payload.body
    assert b"s3cr3t" not in payload.body


def test_a_deleted_job_is_named_by_its_id() -> None:
    body = json.loads(build_payload(event(to_state="failed"), EventType.FAILED, None, []).body)
    assert (body["job"]["id"], body["job"]["name"], body["outcome"]) == ("abcdefghij", None, None)


def test_the_signature_covers_the_moment_and_the_body() -> None:
    headers = signature(_SECRET.encode(), b"{}", 1700000000)
    proof = hmac.new(_SECRET.encode(), b"1700000000.{}", hashlib.sha256).hexdigest()
    assert headers == {"Rekindle-Timestamp": "1700000000", "Rekindle-Signature": f"sha256={proof}"}
    assert signature(_SECRET.encode(), b"{}", 1700000001) != headers


@pytest.mark.parametrize(
    ("verdict", "statuses"),
    [("DELIVERED", [200, 204]), ("REJECTED", [302, 404, 410]), ("RETRY", [408, 429, 500, 503])],
)
def test_an_answer_shows_whether_trying_again_makes_sense(verdict: str, statuses: list[int]) -> None:
    assert {delivery_of(status).result for status in statuses} == {DeliveryResult[verdict]}


def test_a_hook_gets_the_event_and_none_of_the_servers_settings() -> None:
    payload = build_payload(event(to_state="failed"), EventType.FAILED, None, [])
    environment = hook_environment(payload, {"PATH": "/bin", "REKINDLE_TOKEN": "s", "REKINDLE_NOTIFY": "s"})
    names = {"REKINDLE_EVENT", "REKINDLE_EVENT_ID", "REKINDLE_EVENT_JSON", "REKINDLE_JOB_ID"}
    assert environment.keys() == {"PATH", *names}
    assert json.loads(environment["REKINDLE_EVENT_JSON"])["event"] == environment["REKINDLE_EVENT"] == "failed"


@pytest.mark.parametrize(
    ("target", "rule"),
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
def test_a_wrong_receiver_is_refused_with_the_rule(target: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
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


def test_a_chat_gets_a_message_that_mentions_nobody() -> None:
    outcome = Outcome(OutcomeClass.USER_ERROR, "<!channel> @everyone \x1b[31m*bold* failed")
    job = a_job(id="abcdefghij", name="cnn", number=3, owner="ann", state="failed", outcome=outcome.to_json())
    payload = build_payload(event(from_state="running", to_state="failed"), EventType.FAILED, job, [])
    slack, discord = (json.loads(chat_message(payload, chat)) for chat in ("slack", "discord"))
    assert slack == {"text": "cnn (#3) failed: &lt;!channel&gt; @everyone *bold* failed"}
    assert discord["content"] == "cnn (#3) failed: <!channel\\> @everyone \\*bold\\* failed"
    assert discord["allowed_mentions"] == {"parse": []}


def test_a_channel_of_a_person_is_another_than_that_of_all() -> None:
    channels = [NotificationTarget(url="https://h/x", secret=_SECRET, owner=owner) for owner in (None, "ann", "bob")]
    assert len({each.key for each in channels}) == 3
    for wrong in (
        {"command": ("/bin/true",), "format": "slack"},
        {"url": "https://h/x"},
        {"url": "https://h/x", "format": "irc"},
    ):
        with pytest.raises(ValidationError):
            NotificationTarget(**wrong)
