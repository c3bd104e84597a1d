import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from rekindle.contract.chaos import Fault
from rekindle.contract.files import write_json
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.control import ControlMessage, MessageType, parse_message
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.run_dir.rank_records import RankState, RankStatus
from rekindle.contract.states import JobState
from rekindle_service.scheduler.run_sync import RunSync


class Victim:
    """A running job of two ranks, both this very process, whose messages to the keeper the test reads."""

    def __init__(self, server: ApiServer, code: Path) -> None:
        self.server = server
        self.job = server.submit(code, ranks=2)
        self.url = f"/api/v1/jobs/{self.job['id']}"
        self.run_dir = server.run_dir(self.job)
        self.journal = Journal(self.run_dir.journal)
        identity = ProcessIdentity.own()
        keeper = {"pid": identity.pid, "start_time": identity.start_time, "boot_id": identity.boot_id}
        self.journal.write(RecordType.KEEPER_STARTED, run=1, keeper=keeper)
        devices = ["cpu:0", "cpu:1"]
        self.journal.write(
            RecordType.ATTEMPT_STARTED, attempt=1, run=1, generation="x", world_size=2, devices=devices, warm=True
        )
        server.move(self.job, JobState.STARTING, JobState.RUNNING, attempt=1, run=1)
        for rank in (0, 1):
            self.status(rank, RankState.RUNNING)
        os.mkfifo(self.run_dir.control)
        self.fifo = os.open(self.run_dir.control, os.O_RDWR | os.O_NONBLOCK)

    def status(self, rank: int, state: RankState) -> None:
        identity = ProcessIdentity.own()
        status = RankStatus(rank, rank, 2, "box", identity.pid, identity.start_time, "cpu", state, 0.0)
        folder = self.run_dir.attempt(1).rank(rank)
        folder.root.mkdir(parents=True, exist_ok=True)
        write_json(folder.status, status.to_json(), durable=False)

    def inject(self, body: object) -> Any:
        return self.server.api.post(f"{self.url}/chaos", json=body)

    def messages(self) -> list[ControlMessage | None]:
        try:
            return [parse_message(line) for line in os.read(self.fifo, 65536).splitlines()]
        except BlockingIOError:
            return []


@pytest.fixture
def victim(server: ApiServer, code: Path) -> Iterator[Victim]:
    victim = Victim(server, code)
    yield victim
    os.close(victim.fifo)


def test_a_fault_is_sent_to_the_keeper(victim: Victim) -> None:
    answer = victim.inject({"fault": "kill", "rank": 1})
    assert (answer.status_code, answer.json()) == (202, {"attempt": 1, "fault": "kill", "rank": 1})
    assert victim.messages() == [ControlMessage(MessageType.CHAOS, 1, 1, fault=Fault.KILL)]


@pytest.mark.parametrize("fault", [Fault.AGENT, Fault.KEEPER])
def test_a_fault_that_strikes_no_rank_names_none(victim: Victim, fault: Fault) -> None:
    assert victim.inject({"fault": fault}).json() == {"attempt": 1, "fault": fault, "rank": None}
    assert victim.messages()[0] == ControlMessage(MessageType.CHAOS, 1, fault=fault)


def test_without_a_rank_any_running_one_is_struck_and_named(victim: Victim) -> None:
    struck = {victim.inject({"fault": "stop", "rank": None}).json()["rank"] for _ in range(40)}
    assert struck == {0, 1} == {message.rank for message in victim.messages() if message is not None}
    victim.status(0, RankState.DONE)
    assert {victim.inject({"fault": "stop"}).json()["rank"] for _ in range(10)} == {1}


@pytest.mark.parametrize(
    ("body", "field", "told"),
    [
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
    ],
)
def test_what_cannot_be_injected_is_told_by_field_and_rule(victim: Victim, body: object, field: str, told: str) -> None:
    answer = victim.inject(body)
    assert answer.status_code == 422, answer.text
    errors = answer.json()["errors"]
    assert [error["field"] for error in errors] == [field]
    assert told in errors[0]["rule"]
    assert victim.messages() == []


def test_a_job_that_does_not_run_is_left_alone(victim: Victim) -> None:
    victim.server.move(victim.job, JobState.RECOVERING)
    answer = victim.inject({"fault": "kill"})
    assert (answer.status_code, answer.json()["detail"]) == (409, "chaos needs a running job; this one is recovering")
    victim.server.move(victim.job, JobState.SUCCEEDED)
    assert victim.inject({"fault": "keeper"}).json()["detail"] == "chaos needs a running job; this one has succeeded"
    assert victim.messages() == []


def test_a_rank_that_does_not_run_is_not_struck(victim: Victim) -> None:
    victim.status(1, RankState.DONE)
    assert victim.inject({"fault": "kill", "rank": 1}).status_code == 409
    victim.status(0, RankState.DONE)
    assert victim.inject({"fault": "kill"}).status_code == 409
    assert victim.messages() == []


def test_a_snapshot_can_only_be_damaged_when_there_is_one(victim: Victim) -> None:
    answer = victim.inject({"fault": "corrupt-snapshot"})
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/no-snapshot")


def test_an_unknown_job_and_a_stranger_are_refused(victim: Victim) -> None:
    assert victim.server.api.post("/api/v1/jobs/0000000000/chaos", json={"fault": "kill"}).status_code == 404
    assert victim.server.stranger.post(f"{victim.url}/chaos", json={"fault": "kill"}).status_code == 401
    assert victim.messages() == []


def test_nobody_listening_is_no_fault_of_the_request(victim: Victim) -> None:
    victim.run_dir.control.unlink()
    assert victim.inject({"fault": "kill", "rank": 0}).status_code == 202


def test_an_injected_fault_is_part_of_the_story(victim: Victim) -> None:
    victim.journal.write(RecordType.FAULT_INJECTED, attempt=1, fault="kill", rank=1, snapshot=None)
    victim.journal.write(RecordType.FAULT_INJECTED, attempt=1, fault="corrupt-snapshot", rank=None, snapshot=40)
    state = victim.server.state
    row = state.store.job(victim.job["id"])
    assert row is not None
    RunSync(state.store, state.home).read_journal(row)
    faults = victim.server.api.get(f"{victim.url}/attempts").json()["items"][0]["faults"]
    assert [(fault["fault"], fault["rank"], fault["snapshot"]) for fault in faults] == [
        ("kill", 1, None),
        ("corrupt-snapshot", None, 40),
    ]
    events = victim.server.api.get(f"{victim.url}/events").json()["items"]
    told = [event["reason"] for event in events if event["kind"] == "chaos"]
    assert told == ["attempt 1: kill rank 1", "attempt 1: corrupt-snapshot of step 40"]
