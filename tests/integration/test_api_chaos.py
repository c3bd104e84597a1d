import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from job_records import record_attempt, record_keeper, record_status
from rekindle.contract.run_dir.control_messages import ControlMessage, Fault, MessageType, parse_message
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.run_dir.rank_records import RankState
from rekindle.contract.states import JobState
from rekindle_service.scheduler.run_sync import RunSync


class TargetJob:
    """A running job of two ranks, both this very process, whose messages to the keeper the test reads."""

    def __init__(self, server: ApiServer, code: Path) -> None:
        self.server = server
        self.job = server.submit(code, ranks=2)
        self.url = f"/api/v1/jobs/{self.job['id']}"
        self.run_dir = server.run_dir(self.job)
        self.journal = Journal(self.run_dir.journal)
        record_keeper(self.run_dir)
        record_attempt(self.run_dir, world_size=2)
        server.move(self.job, JobState.STARTING, JobState.RUNNING, attempt=1, run=1)
        for rank in (0, 1):
            self.status(rank, RankState.RUNNING)
        os.mkfifo(self.run_dir.control)
        self.fifo = os.open(self.run_dir.control, os.O_RDWR | os.O_NONBLOCK)

    def status(self, rank: int, state: RankState) -> None:
        record_status(self.run_dir.attempt(1).rank(rank), rank, state)

    def inject(self, body: object) -> Any:
        return self.server.api.post(f"{self.url}/chaos", json=body)

    def messages(self) -> list[ControlMessage | None]:
        try:
            return [parse_message(line) for line in os.read(self.fifo, 65536).splitlines()]
        except BlockingIOError:
            return []


@pytest.fixture
def target(shared_server: ApiServer, shared_code: Path) -> Iterator[TargetJob]:
    target = TargetJob(shared_server, shared_code)
    yield target
    os.close(target.fifo)


def test_a_fault_is_sent_to_the_keeper(target: TargetJob) -> None:
    answer = target.inject({"fault": "kill", "rank": 1})
    assert (answer.status_code, answer.json()) == (202, {"attempt": 1, "fault": "kill", "rank": 1})
    assert target.messages() == [ControlMessage(MessageType.CHAOS, 1, 1, fault=Fault.KILL)]


def test_a_fault_that_strikes_no_rank_names_none(target: TargetJob) -> None:
    for fault in (Fault.AGENT, Fault.KEEPER):
        assert target.inject({"fault": fault}).json() == {"attempt": 1, "fault": fault, "rank": None}
        assert target.messages() == [ControlMessage(MessageType.CHAOS, 1, fault=fault)]


def test_without_a_rank_any_running_one_is_struck_and_named(target: TargetJob) -> None:
    struck = {target.inject({"fault": "stop", "rank": None}).json()["rank"] for _ in range(40)}
    assert struck == {0, 1} == {message.rank for message in target.messages() if message is not None}
    target.status(0, RankState.DONE)
    assert {target.inject({"fault": "stop"}).json()["rank"] for _ in range(10)} == {1}


def test_what_cannot_be_injected_is_rejected_with_field_and_rule(target: TargetJob) -> None:
    for body, field, rule in (
        ({"fault": "explode"}, "fault", "'kill', 'stop', 'crash'"),
        ({"fault": ["kill"]}, "fault", "'kill'"),
        ({"fault": None}, "fault", "'kill'"),
        ({}, "fault", "is required"),
        ({"fault": "kill", "rank": 2}, "rank", "0, 1"),
        ({"fault": "kill", "rank": -1}, "rank", "greater than or equal to 0"),
        ({"fault": "kill", "rank": 10**30}, "rank", "less than 4096"),
        ({"fault": "kill", "rank": "1"}, "rank", "integer"),
        ({"fault": "kill", "rank": True}, "rank", "integer"),
        ({"fault": "kill", "rank": 0.5}, "rank", "integer"),
        ({"fault": "agent", "rank": 0}, "body", "targets no single rank"),
        ({"fault": "kill", "ranks": 1}, "ranks", "unknown field"),
        ([], "body", "JSON object"),
    ):
        answer = target.inject(body)
        assert answer.status_code == 422, body
        (error,) = answer.json()["errors"]
        assert error["field"] == field, body
        assert rule in error["rule"], body
    assert target.messages() == []


def test_a_job_that_does_not_run_is_left_alone(target: TargetJob) -> None:
    target.server.move(target.job, JobState.RECOVERING)
    answer = target.inject({"fault": "kill"})
    assert (answer.status_code, answer.json()["detail"]) == (409, "chaos needs a running job; this one is recovering")
    target.server.move(target.job, JobState.SUCCEEDED)
    assert target.inject({"fault": "keeper"}).json()["detail"] == "chaos needs a running job; this one has succeeded"
    assert target.messages() == []


def test_a_rank_that_does_not_run_is_not_struck(target: TargetJob) -> None:
    target.status(1, RankState.DONE)
    assert target.inject({"fault": "kill", "rank": 1}).status_code == 409
    target.status(0, RankState.DONE)
    assert target.inject({"fault": "kill"}).status_code == 409
    assert target.messages() == []


def test_a_snapshot_can_only_be_damaged_when_there_is_one(target: TargetJob) -> None:
    answer = target.inject({"fault": "corrupt-snapshot"})
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/no-snapshot")


def test_an_unknown_job_is_not_found(target: TargetJob) -> None:
    assert target.server.api.post("/api/v1/jobs/0000000000/chaos", json={"fault": "kill"}).status_code == 404


def test_nobody_listening_is_no_fault_of_the_request(target: TargetJob) -> None:
    target.run_dir.control.unlink()
    assert target.inject({"fault": "kill", "rank": 0}).status_code == 202


def test_an_injected_fault_is_part_of_the_story(target: TargetJob) -> None:
    target.journal.write(RecordType.FAULT_INJECTED, attempt=1, fault="kill", rank=1, snapshot=None)
    target.journal.write(RecordType.FAULT_INJECTED, attempt=1, fault="corrupt-snapshot", rank=None, snapshot=40)
    state = target.server.state
    row = state.store.job(target.job["id"])
    assert row is not None
    RunSync(state.store, state.home).read_journal(row)
    faults = target.server.api.get(f"{target.url}/attempts").json()["items"][0]["faults"]
    assert [(fault["fault"], fault["rank"], fault["snapshot"]) for fault in faults] == [
        ("kill", 1, None),
        ("corrupt-snapshot", None, 40),
    ]
    events = target.server.api.get(f"{target.url}/events").json()["items"]
    reasons = [event["reason"] for event in events if event["kind"] == "chaos"]
    assert reasons == ["attempt 1: kill rank 1", "attempt 1: corrupt-snapshot of step 40"]
