"""Digests of jobs over HTTP: which steps have some, and at which two jobs or attempts begin to differ."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from digest_files import DigestWriter
from job_records import record_attempt
from rekindle.contract.files import write_json
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.digest_records import TensorKind
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.states import JobState
from rekindle_service.store.projection import RowChanges

Job = dict[str, Any]
STEPS = range(100, 600, 100)


@pytest.fixture
def job(shared_server: ApiServer, shared_code: Path) -> Job:
    return shared_server.submit(shared_code, ranks=2)


@pytest.fixture
def other(shared_server: ApiServer, shared_code: Path) -> Job:
    return shared_server.submit(shared_code, ranks=2, args=["--seed", "2"])


def diff(server: ApiServer, job: Job, other: Job, **query: int) -> dict[str, Any]:
    answer = server.api.get(f"/api/v1/jobs/{job['id']}/diff/{other['id']}", params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_steps_with_digests_are_listed_page_by_page(shared_server: ApiServer, job: Job) -> None:
    writer = DigestWriter(shared_server.run_dir(job))
    writer.write(STEPS)
    replace(writer, ranks=1, attempt=2).write([400, 500, 600])
    url = f"/api/v1/jobs/{job['id']}/digests"
    first = shared_server.api.get(url, params={"limit": 3}).json()
    assert [each["step"] for each in first["items"]] == [100, 200, 300]
    rest = shared_server.api.get(url, params={"after": first["next"]}).json()
    assert rest["items"][0] == {"step": 400, "attempt": 2, "epoch": 0, "ranks": 1}
    assert ([each["step"] for each in rest["items"]], rest["next"]) == ([400, 500, 600], None)
    alone = shared_server.api.get(url, params={"attempt": 1, "after": 300}).json()["items"]
    assert [(each["step"], each["attempt"], each["ranks"]) for each in alone] == [(400, 1, 2), (500, 1, 2)]


def test_the_first_difference_is_named_with_what_can_explain_it(shared_server: ApiServer, job: Job, other: Job) -> None:
    DigestWriter(shared_server.run_dir(job)).write(STEPS)
    writer = DigestWriter(shared_server.run_dir(other))
    writer.write(STEPS, writer.tensors(300, 1, TensorKind.GRADIENTS, 0))
    found = diff(shared_server, job, other)
    assert (found["verdict"], found["last_equal_step"], found["equal_steps"]) == ("different", 200, 2)
    assert found["summary"].startswith("First difference: step 300, gradients of fc.weight on rank 1; ")
    assert found["difference"]["phases"] == [{"phase": "gradients", "ranks": [1], "names": ["fc.weight"], "count": 1}]
    assert found["causes"] == [{"kind": "arguments", "text": "arguments: --seed (absent) and 2"}]
    assert found["next_command"] == f"rekindle diff {job['number']} {other['number']} --replay"


def test_changed_code_is_shown_and_nothing_on_record_is_said(
    shared_server: ApiServer, job: Job, shared_code: Path
) -> None:
    same = shared_server.submit(shared_code, ranks=2)
    (shared_code / "lib.py").write_text("x = 1\n")
    third = shared_server.submit(shared_code, ranks=2)
    (shared_code / "lib.py").unlink()
    DigestWriter(shared_server.run_dir(job)).write(STEPS)
    for each in (same, third):
        writer = DigestWriter(shared_server.run_dir(each))
        writer.write(STEPS, writer.later(200, 0, random="other"))
    assert any("not deterministic" in note for note in diff(shared_server, job, same)["notes"])
    found = diff(shared_server, job, third)
    assert found["code"] == [{"path": "lib.py", "change": "added", "diff": None}]
    assert not any("not deterministic" in note for note in found["notes"])


def test_two_replays_of_a_job_that_differ_show_that_the_script_is_not_deterministic(
    shared_server: ApiServer, job: Job
) -> None:
    run_dir = shared_server.run_dir(job)
    record_attempt(run_dir, world_size=2)
    outcome = {"class": "nan", "message": "loss is nan at step 9"}
    Journal(run_dir.journal).write(RecordType.ATTEMPT_ENDED, attempt=1, outcome=outcome, last_step=9)
    shared_server.read_journal(job)
    bodies: list[dict[str, Any]] = [{"step": 9}, {}, {"script": "def after_step(step): ..."}]
    url = f"/api/v1/jobs/{job['id']}/replay"
    replays = [shared_server.api.post(url, json=body).json() for body in bodies]
    wrong = shared_server.api.post(url, json={"pdb": True, "rank": 2})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "rank")
    for each, random in zip(replays, ("one", "two", "three"), strict=True):
        writer = DigestWriter(shared_server.run_dir(each))
        writer.write(range(6, 10), writer.later(8, 1, random=random))
    sentence = "Both are replays of the same job: the script is not deterministic, from step 8 on."
    assert sentence in diff(shared_server, replays[0], replays[1])["notes"]
    assert sentence not in diff(shared_server, replays[0], replays[2])["notes"]


def test_two_attempts_of_a_job_are_compared(shared_server: ApiServer, job: Job) -> None:
    writer = DigestWriter(shared_server.run_dir(job))
    writer.write(STEPS)
    second = replace(writer, attempt=2)
    second.write([400, 500, 600], second.later(500, 1, batch="other"))
    found = diff(shared_server, job, job, attempt=1, other_attempt=2)
    assert (found["difference"]["step"], found["last_equal_step"]) == (500, 400)
    assert (found["difference"]["attempt"], found["difference"]["other_attempt"]) == (1, 2)
    assert [each["kind"] for each in found["causes"]] == ["data"]
    assert diff(shared_server, job, job)["verdict"] == "identical"
    url = f"/api/v1/jobs/{job['id']}/diff/{job['id']}"
    assert shared_server.api.get(url, params={"other_attempt": 9}).status_code == 404


def test_secrets_are_not_shown_and_what_has_no_digests_is_not_compared(
    shared_server: ApiServer, job: Job, shared_code: Path
) -> None:
    secret = shared_server.submit(shared_code, ranks=2, env={"TOKEN": "hunter2"})
    write_json(shared_server.run_dir(secret).surroundings, {"packages": {"torch": "2.16"}})
    answer = diff(shared_server, job, secret)
    assert (answer["verdict"], answer["difference"], answer["next_command"]) == ("incomparable", None, None)
    assert "has not started" in answer["summary"]
    assert answer["causes"] == [{"kind": "variables", "text": "variables: TOKEN"}]
    unknown = shared_server.api.get(f"/api/v1/jobs/{job['id']}/diff/nosuchjob0")
    assert (unknown.status_code, unknown.json()["type"]) == (404, "/problems/unknown-job")


def test_a_device_check_is_opened_once_and_only_for_a_step_that_a_stopped_job_has_computed(
    shared_server: ApiServer, job: Job
) -> None:
    url = f"/api/v1/jobs/{job['id']}/replay"
    asked = {"step": 5, "check_device": True}
    for wrong in ({"until": 9}, {"device": "cpu"}):
        assert "omit until, device" in shared_server.api.post(url, json=asked | wrong).text
    refused = shared_server.api.post(url, json=asked)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "step")
    shared_server.move(job, JobState.STARTING, JobState.RUNNING, attempt=1)
    row = shared_server.state.store.job(job["id"])
    assert row is not None
    attempts = {1: AttemptInfo(1, 1, 1.0, 2, ["cpu:0", "cpu:1"], last_step=20)}
    assert shared_server.state.store.apply_journal(row, RowChanges(offset=1, attempts=attempts)) is not None
    running = shared_server.api.post(url, json=asked)
    assert (running.status_code, running.json()["type"]) == (409, "/problems/wrong-state")
    shared_server.move(job, JobState.FAILED)
    opened = shared_server.api.post(url, json=asked)
    assert (opened.status_code, opened.json()["id"], opened.json()["checked_step"]) == (201, job["id"], 5)
    again = shared_server.api.post(url, json=asked)
    assert (again.status_code, "open device check" in again.text) == (409, True)
    assert shared_server.api.post(url, json={"step": 21, "check_device": True}).status_code == 422
