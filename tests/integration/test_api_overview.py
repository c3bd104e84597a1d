"""The overview: what needs a person, what runs, what is next, what has ended; tags, notes and the archive."""

from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer, api_server
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.access.permissions import Scope
from rekindle_service.jobs.actions import resume
from rekindle_service.store.tables import Job

FAILURE = {"class": "user_error", "message": "ValueError: lr < 0\n  at <b>", "rank": 1, "file": "train.py", "line": 42}


def overview(server: ApiServer, **query: int) -> dict[str, Any]:
    answer = server.api.get("/api/v1/overview", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def names(section: list[dict[str, Any]]) -> list[str]:
    return [(item["job"] or item["experiment"])["name"] for item in section]


def end(server: ApiServer, job: dict[str, Any], state: JobState, at: float, **columns: Any) -> None:
    server.move(job, JobState.STARTING)
    server.move(job, state, ended_at=at, **columns)


def patch(server: ApiServer, job: dict[str, Any], **body: Any) -> Any:
    return server.api.patch(f"/api/v1/jobs/{job['id']}", json=body)


@pytest.fixture
def lab(server: ApiServer, code: Path) -> dict[str, dict[str, Any]]:
    """A job of each kind, by name."""
    wanted = ["broken", "held", "runs", "second", "first", "after", "good", "stopped"]
    jobs = {name: server.submit(code, name=name) for name in wanted}
    end(server, jobs["broken"], JobState.FAILED, 50.0, outcome=FAILURE)
    server.state.store.set_intent(jobs["held"]["id"], JobIntent.HOLD)
    server.move(jobs["runs"], JobState.STARTING, JobState.RUNNING, started_at=20.0)
    for position, name in enumerate(["first", "second"], start=1):
        shown = {"queue_position": position, "waiting_for": "2 CPU slots, 1 free"}
        server.state.store.update_progress(jobs[name]["id"], **shown)
    server.state.store.update_progress(jobs["after"]["id"], waiting_for="its owner ann holds 4 of 4 slots")
    end(server, jobs["good"], JobState.SUCCEEDED, 30.0)
    end(server, jobs["stopped"], JobState.CANCELLED, 40.0)
    return jobs


def test_each_job_is_in_one_section_with_the_reason(server: ApiServer, lab: dict[str, Any]) -> None:
    found = overview(server)
    sections = {name: names(found[name]) for name in ("needs_you", "running", "next", "done")}
    assert sections == {
        "needs_you": ["broken", "held"],
        "running": ["runs"],
        "next": ["first", "second", "after"],
        "done": ["stopped", "good"],
    }
    assert [item["reason"] for item in found["needs_you"] + found["next"]] == [
        "ValueError: lr < 0 (rank 1, train.py:42)",
        "on hold",
        "waiting for 2 CPU slots, 1 free",
        "waiting for 2 CPU slots, 1 free",
        "waiting: its owner ann holds 4 of 4 slots",
    ]
    assert found["counts"] == {"needs_you": 2, "running": 1, "next": 3}
    first = overview(server, limit=1)
    assert [len(first[name]) for name in sections] == [1, 1, 1, 1]
    assert first["counts"] == found["counts"]


def test_a_failure_needs_nobody_once_it_was_seen_until_it_fails_again(server: ApiServer, lab: dict[str, Any]) -> None:
    broken = lab["broken"]
    seen = patch(server, broken, seen=True).json()
    assert seen["seen_at"] is not None
    assert names(overview(server)["needs_you"]) == ["held"]
    assert names(overview(server)["done"]) == ["broken", "stopped", "good"]
    assert patch(server, broken, seen=True).json()["version"] == seen["version"]  # once is enough
    server.move(broken, JobState.QUEUED)
    end(server, broken, JobState.FAILED, 60.0, outcome=FAILURE)
    assert names(overview(server)["needs_you"]) == ["broken", "held"]


def test_only_ended_jobs_can_be_archived_and_leave_all_sections(server: ApiServer, lab: dict[str, Any]) -> None:
    assert patch(server, lab["good"], archived=True).json()["archived_at"] is not None
    assert names(overview(server)["done"]) == ["stopped"]
    assert patch(server, lab["good"], archived=False).json()["archived_at"] is None
    refused = patch(server, lab["runs"], archived=True, note="never written")
    assert refused.status_code == 409
    assert "is running; archived can be set only of a job that has ended" in refused.json()["detail"]
    assert server.api.get(f"/api/v1/jobs/{lab['runs']['id']}").json()["note"] == ""


def test_jobs_have_tags_and_a_note(server: ApiServer, lab: dict[str, Any]) -> None:
    changed = patch(server, lab["runs"], tags=["paper", "baseline", "paper"], note="see \x1b[31m <i>wandb</i>\n").json()
    assert (changed["tags"], changed["note"]) == (["baseline", "paper"], "see \x1b[31m <i>wandb</i>\n")
    assert patch(server, lab["runs"], tags=[]).json()["tags"] == []
    for wrong in ({"tags": ["two words"]}, {"tags": ["x" * 41]}, {"note": "x" * 2001}, {"note": "\0"}, {}):
        assert patch(server, lab["runs"], **wrong).status_code == 422, wrong


def test_an_experiment_is_one_row_once_all_its_jobs_have_ended(server: ApiServer, code: Path) -> None:
    (code / "train.py").write_text("")
    base = {"script": str(code / "train.py"), "device": "cpu"}
    alone = server.submit(code, name="alone")
    answer = server.api.post("/api/v1/experiments", json={"name": "rates", "base": base, "matrix": {"--lr": [1, 2, 3]}})
    jobs = [{"id": trial["job"]} for trial in answer.json()["trials"]]
    end(server, alone, JobState.SUCCEEDED, 20.0)
    end(server, jobs[0], JobState.SUCCEEDED, 10.0)
    end(server, jobs[1], JobState.SUCCEEDED, 30.0)
    assert names(overview(server)["done"]) == ["alone"]
    end(server, jobs[2], JobState.SUCCEEDED, 15.0)
    found = overview(server)
    assert names(found["done"]) == ["rates", "alone"]
    assert found["done"][0]["experiment"]["states"] == {"succeeded": 3}
    assert names(overview(server, limit=1)["done"]) == ["rates"]
    resume(server.state.store, jobs[0]["id"])
    assert names(overview(server)["done"]) == ["alone"]


def test_a_full_disk_and_an_unusable_device_come_first(
    server: ApiServer, lab: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rekindle_service.config.home.MIN_FREE_BYTES", 1 << 60)
    server.state.devices.health.set_in_use({"cpu:1": "in use by python3 (pid 4) of bob"})
    disk, device, *jobs = overview(server)["needs_you"]
    assert disk["kind"] == "disk"
    assert "MB free, at least" in disk["reason"]
    assert (device["kind"], device["device"]) == ("device", "cpu:1")
    assert names(jobs) == ["broken", "held"]


def test_failures_by_the_same_exception_at_the_same_line_are_one_row(server: ApiServer, code: Path) -> None:
    cause = {**FAILURE, "exception": "RuntimeError", "line": 31}
    causes = {"a": cause, "other line": {**cause, "line": 32}, "b": cause, "c": cause}
    causes |= {"unknown": {**FAILURE, "exception": None}, "unknown too": {**FAILURE, "exception": None}}
    for at, (name, outcome) in enumerate(causes.items()):
        end(server, server.submit(code, name=name), JobState.FAILED, float(at), outcome=outcome)
    found = overview(server)
    assert names(found["needs_you"]) == ["unknown too", "unknown", "c", "other line"]
    alike = {each["job"]["name"]: found["alike"].get(each["job"]["id"]) for each in found["needs_you"]}
    assert [each["name"] for each in alike.pop("c")] == ["b", "a"]
    assert set(alike.values()) == {None}
    assert found["counts"]["needs_you"] == 6
    assert names(overview(server, limit=3)["needs_you"]) == ["unknown too", "unknown", "c"]


def test_ones_own_jobs_alone(server: ApiServer, lab: dict[str, Any], code: Path) -> None:
    with server.state.store.writing() as session:
        for name in ("broken", "held", "runs", "first", "after", "good"):
            row = session.get(Job, lab[name]["id"])
            assert row is not None
            row.owner = "ann"
    found = overview(server, mine=1)
    sections = {name: names(found[name]) for name in ("needs_you", "running", "next", "done")}
    assert sections == {"needs_you": [], "running": [], "next": ["second"], "done": ["stopped"]}
    assert found["counts"] == {"needs_you": 0, "running": 0, "next": 1}


def test_nobody_sees_jobs_that_they_may_not_read(tmp_path: Path, code: Path) -> None:
    with api_server(tmp_path, private_jobs=True) as server:
        mine = server.submit(code, name="of the administrator")
        end(server, mine, JobState.FAILED, 50.0, outcome=FAILURE)
        token = server.state.access.tokens.create("ann", Scope.SUBMIT, created_by="root").secret
        found = server.stranger.get("/api/v1/overview", headers={"Authorization": f"Bearer {token}"}).json()
        assert [found[name] for name in ("needs_you", "running", "next", "done")] == [[], [], [], []]
        assert found["counts"] == {"needs_you": 0, "running": 0, "next": 0}


@pytest.mark.parametrize("scope", [Scope.READ, Scope.SUBMIT])
def test_what_only_somebody_else_may_act_on_is_listed_and_needs_nobody_here(
    server: ApiServer, lab: dict[str, Any], code: Path, monkeypatch: pytest.MonkeyPatch, scope: Scope
) -> None:
    monkeypatch.setattr("rekindle_service.config.home.MIN_FREE_BYTES", 1 << 60)
    server.state.devices.health.set_in_use({"cpu:1": "in use by python3 (pid 4) of bob"})
    token = server.state.access.tokens.create("ann", scope, created_by="root").secret
    with server.state.store.writing() as session:
        for name in ("good", "held"):
            own = session.get(Job, lab[name]["id"])
            assert own is not None
            own.owner = "ann"
    server.state.store.set_intent(lab["after"]["id"], JobIntent.HOLD)
    found = server.stranger.get("/api/v1/overview", headers={"Authorization": f"Bearer {token}"}).json()
    if scope is Scope.SUBMIT:
        disk, held = found["needs_you"]
        assert (disk["kind"], held["job"]["name"]) == ("disk", "held")
        assert names(found["next"]) == ["first", "second", "after"]
    else:
        assert found["needs_you"] == []
        assert names(found["next"]) == ["first", "second", "held", "after"]
    assert names(found["done"]) == ["broken", "stopped", "good"]
    assert found["counts"]["needs_you"] == len(found["needs_you"])
    assert found["counts"]["next"] == len(found["next"])
