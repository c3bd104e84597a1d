import json
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from disks import remount, tmpfs
from job_examples import names_in
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.launch.slurm.slurm_launcher import NO_SLURM
from rekindle_service.store import StorageError, Store
from rekindle_service.store.tables import Job
from shared_server import one_server  # noqa: F401 the fixture server

JOBS = "/api/v1/jobs"


def problem(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    assert body["type"].startswith("/problems/")
    assert body["title"]
    assert body["detail"]
    return body


@pytest.fixture
def body(code: Path) -> dict[str, Any]:
    """A sound request."""
    (code / "train.py").write_text("")
    return {"script": str(code / "train.py"), "device": "cpu"}


def run_ids(server: ApiServer) -> list[str]:
    return names_in(server.state.home.runs)


def test_a_job_is_submitted_with_defaults_and_read_back(server: ApiServer, body: dict[str, Any]) -> None:
    answer = server.api.post(JOBS, json=body)
    job = answer.json()
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"{JOBS}/{job['id']}"
    assert server.api.get(answer.headers["Location"]).json() == job
    expected = {
        "name": "train",
        "state": "queued",
        "intent": "run",
        "attempt": 0,
        "ranks": {"min": 1, "max": 1},
        "target": {"kind": "script", "value": "train.py"},
        "max_failures": 3,
        "restarts": 0,
        "outcome": None,
        "warm": True,
        "snapshot": {"every_steps": None, "every_seconds": None, "every_epochs": None, "keep": 3}
        | {"auto": False, "monitor": None},
        "started_at": None,
    }
    assert {name: job[name] for name in expected} == expected
    assert job["created_at"].endswith("Z")


def test_values_of_the_environment_are_never_shown(server: ApiServer, code: Path) -> None:
    job = server.submit(code, env={"WANDB_API_KEY": "hunter2", "MODE": "fast"})
    assert job["env"] == {"WANDB_API_KEY": "•••", "MODE": "•••"}
    for path in ("", f"/{job['id']}", f"/{job['id']}/events", f"/{job['id']}/attempts"):
        assert "hunter2" not in server.api.get(JOBS + path).text


def test_a_repeat_with_the_same_key_gets_the_first_job(server: ApiServer, body: dict[str, Any]) -> None:
    ids = [server.api.post(JOBS, json=body, headers={"Idempotency-Key": key}).json()["id"] for key in ("a", "a", "b")]
    assert ids[0] == ids[1] != ids[2]
    spaced = json.dumps({"after": [], **dict(reversed(body.items()))}, indent=2)
    repeat = {"Idempotency-Key": "a", "Content-Type": "application/json"}
    assert server.api.post(JOBS, content=spaced, headers=repeat).json()["id"] == ids[0]


def test_a_key_of_another_request_is_rejected(server: ApiServer, body: dict[str, Any]) -> None:
    header = {"Idempotency-Key": "other"}
    job = server.api.post(JOBS, json=body, headers=header).json()
    before = run_ids(server)
    (error,) = problem(server.api.post(JOBS, json={**body, "priority": 3}, headers=header), 422)["errors"]
    assert (error["field"], error["value"]) == ("Idempotency-Key", "other")
    assert job["id"] in error["rule"]
    assert "key of its own" in error["hint"]
    assert run_ids(server) == before


def test_a_wrong_field_is_answered_with_field_rule_value_and_hint(server: ApiServer, code: Path) -> None:
    before = run_ids(server)
    (code / "train.py").write_text("")
    sound = {"script": "train.py", "code": {"path": str(code)}, "device": "cpu"}
    for fields, field, rule in (
        ({"ranks": 0}, "ranks", "whole number from 1"),
        ({"ranks": -3}, "ranks", "whole number from 1"),
        ({"ranks": True}, "ranks", "whole number from 1"),
        ({"ranks": "2"}, "ranks", "whole number from 1"),
        ({"ranks": 10**40}, "ranks", "whole number from 1"),
        ({"ranks": {"min": 0, "max": 1}}, "ranks.min", "greater than or equal to 1"),
        ({"ranks": {"min": 2, "max": 1}}, "ranks", "min must not be greater"),
        ({"ranks": None}, "ranks", "whole number from 1"),
        ({"max_failures": 0}, "max_failures", "greater than or equal to 1"),
        ({"hang_timeout": 0}, "hang_timeout", "greater than 0"),
        ({"time_limit": -1}, "time_limit", "greater than 0"),
        ({"time_limit": 1e300}, "time_limit", "less than"),
        ({"device": "gpu"}, "device", "'auto', 'cpu' or 'cuda'"),
        ({"args": ["a\0b"]}, "args.0", "NUL"),
        ({"args": "--lr 1"}, "args", "valid list"),
        ({"env": {"A B": "x"}}, "env.A B", "match pattern"),
        ({"env": {"A": "x\0"}}, "env.A", "NUL"),
        ({"env": {"A": 1}}, "env.A", "valid string"),
        ({"name": "a\nERROR forged line"}, "name", "control characters"),
        ({"name": ""}, "name", "visible"),
        ({"name": "x" * 201}, "name", "at most 200"),
        ({"name": "half \ud800 pair"}, "name", "valid string"),
        ({"module": "pkg.train"}, "body", "exactly one of script, module and recipe"),
        ({"script": None}, "body", "exactly one of script, module and recipe"),
        ({"script": "nowhere.py"}, "script", "not found in"),
        ({"script": "x" * 300}, "script", "255 bytes"),
        ({"code": {"path": "/" + "y" * 300}}, "code.path", "255 bytes"),
        ({"code": {}}, "code", "exactly one of path, bundle and git must be given, not none"),
        ({"code": {"path": "/", "ref": "main"}}, "code", "ref requires git"),
        ({"code": {"git": "https://h/r", "commit": "0" * 40}}, "code", "commit requires path or bundle"),
        ({"code": {"path": "/", "commit": "--all"}}, "code.commit", "[0-9a-f]"),
        ({"code": {"path": "/", "bundle": "x"}}, "code", "exactly one of path, bundle and git must be given"),
        ({"after": ["nonesuch12"]}, "after", "jobs that exist"),
        ({"snapshot": {"keep": 0}}, "snapshot.keep", "greater than or equal to 1"),
        ({"snapshot": {"monitor": "-"}}, "snapshot.monitor", "must be the name of a logged metric"),
        ({"snapshot": {"auto": "yes"}}, "snapshot.auto", "valid boolean"),
        ({"nodes": 2}, "nodes", "must be 1"),
    ):
        content = json.dumps({**sound, **fields})
        answer = server.api.post(JOBS, content=content, headers={"Content-Type": "application/json"})
        errors = problem(answer, 422)["errors"]
        assert field in [error["field"] for error in errors], fields
        assert any(rule in error["rule"] for error in errors), (fields, errors)
        assert all(set(error) == {"field", "rule", "value", "hint"} for error in errors)
    assert run_ids(server) == before


def test_the_commit_that_a_client_names_is_recorded(server: ApiServer, body: dict[str, Any], code: Path) -> None:
    for sent, stored in (({"dirty": True}, {"dirty": "yes"}), ({"dirty": False}, {})):
        request = {**body, "script": "train.py", "code": {"path": str(code), "commit": "0a" * 20, **sent}}
        job = server.api.post(JOBS, json=request).json()
        assert job["code"] == {"path": str(code), "commit": "0a" * 20, **stored}


def test_a_wrong_name_or_value_is_answered_with_a_better_one(server: ApiServer) -> None:
    for fields, field, hint in (
        ({"rank": 2}, "rank", "did you mean 'ranks'?"),
        ({"max_failure": 2}, "max_failure", "did you mean 'max_failures'?"),
        ({"launch": "torchurn"}, "launch", "did you mean 'torchrun'?"),
        ({"env": {"X": {"fom": "HOME"}}}, "env.X.fom", "did you mean 'from'?"),
        ({"snapshot": {"every_step": 5}}, "snapshot.every_step", "did you mean 'every_steps'?"),
        ({"ranks": {"min": 1, "max": 1, "maximum": 1}}, "ranks.maximum", "did you mean 'max'?"),
        ({"code": {"path": "/src", "pth": "x"}}, "code.pth", "did you mean 'path'?"),
        ({"zzz": 1}, "zzz", "known here: args, env"),
        ({"max_failures": -1}, "max_failures", "omit it for the default, 3"),
        ({"hang_timeout": 0}, "hang_timeout", "omit it"),
        ({"device": "gpu"}, "device", "did you mean 'cuda'?"),
        ({"snapshot": {"keep": 0}}, "snapshot.keep", "omit it for the default, 3"),
        ({"nodes": 2}, "nodes", NO_SLURM),
        ({"name": "a\nb"}, "name", "line breaks are control characters"),
        ({"env": {"PET_X": "1"}}, "env", "choose a name that begins with none of REKINDLE_, PET_, TORCHELASTIC_"),
    ):
        errors = problem(server.api.post(JOBS, json={"recipe": "ddp", **fields}), 422)["errors"]
        assert [error["field"] for error in errors] == [field], fields
        assert errors[0]["hint"].startswith(hint), fields


def test_a_misspelt_field_of_the_login_is_answered_with_a_guess(server: ApiServer) -> None:
    errors = problem(server.api.post("/login", json={"tokn": "x"}), 422)["errors"]
    assert "did you mean 'token'?" in [error["hint"] for error in errors]


def test_a_body_that_is_no_json_object_is_a_problem_and_no_fault(server: ApiServer) -> None:
    for content, content_type in (
        (b"", "application/json"),
        (b"{", "application/json"),
        (b"\xff\xfe", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"null", "application/json"),
        (b"[]", "application/json"),
        (b'"text"', "application/json"),
        (b'{"ranks": NaN}', "application/json"),
        (b'{"ranks": 1' + b"0" * 5000 + b"}", "application/json"),
        (b'{"script": "a"}', "text/plain"),
        (b"script=a", "application/x-www-form-urlencoded"),
        (b'{"script": "a"}', "application/json; charset=\xff"),
    ):
        headers = [(b"content-type", content_type.encode("latin-1"))]
        answer = server.api.post(JOBS, content=content, headers=headers)
        assert problem(answer, answer.status_code)
        assert answer.status_code in (400, 422), (content[:20], content_type)


def test_a_body_over_ten_megabytes_is_rejected_with_the_limit(server: ApiServer) -> None:
    body = b'{"args": ["' + b"x" * (10 << 20) + b'"]}'
    answer = server.api.post(JOBS, content=body, headers={"Content-Type": "application/json"})
    assert "10 MiB" in problem(answer, 413)["detail"]


def test_a_strange_idempotency_key_is_rejected(server: ApiServer) -> None:
    for key in ("", " ", "x" * 201, "é", "a\tb"):
        answer = server.api.post(JOBS, json={"recipe": "ddp"}, headers=[(b"idempotency-key", key.encode())])
        assert problem(answer, 422)["errors"][0]["field"] == "Idempotency-Key"


def test_lists_come_in_pages_latest_first(server: ApiServer, code: Path) -> None:
    made = [server.submit(code, name=f"job {index}")["id"] for index in range(5)]
    seen: list[str] = []
    cursor = None
    while len(seen) < 5:
        page = server.api.get(JOBS, params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        seen += [job["id"] for job in page["items"]]
        cursor = page["next"]
    assert seen[:5] == made[::-1]
    assert server.api.get(JOBS, params={"limit": 200}).json()["next"] is None
    assert [job["id"] for job in server.api.get(JOBS, params={"name": "job 3"}).json()["items"]] == [made[3]]
    assert server.api.get(JOBS, params={"name": "job 3", "limit": 1}).json()["next"] is None
    assert server.api.get(JOBS, params={"state": "running", "name": "job 3"}).json()["items"] == []


def test_a_wrong_query_is_rejected(server: ApiServer) -> None:
    long, large = f"name={'n' * 300}", f"cursor={'9' * 30}"
    for query in ("limit=0", "limit=201", "limit=x", "cursor=0", "cursor=x", large, "state=paused", long):
        errors = problem(server.api.get(f"{JOBS}?{query}"), 422)["errors"]
        assert errors[0]["field"] == query.partition("=")[0]


def test_an_unknown_job_is_a_404_with_the_route_that_lists_jobs(server: ApiServer) -> None:
    for job_id in ("abcdefghij", "x", "ABCDEFGHIJ", "%00", "a%2fb", "%ff%fe", "e\u0301", "0" * 3000):
        for path in ("", "/attempts", "/ranks", "/metrics", "/snapshots", "/events", "/ranks/0/log"):
            problem(server.api.get(f"{JOBS}/{job_id}{path}"), 404)
        for action in ("cancel", "drain", "resume"):
            problem(server.api.post(f"{JOBS}/{job_id}/{action}"), 404)
        problem(server.api.delete(f"{JOBS}/{job_id}"), 404)
    assert "GET /api/v1/jobs" in problem(server.api.get(f"{JOBS}/abcdefghij"), 404)["detail"]


def test_unknown_routes_and_methods_are_problems(server: ApiServer) -> None:
    problem(server.api.get("/api/v1/nothing"), 404)
    problem(server.api.get("/nothing"), 404)
    assert server.api.put(JOBS).headers["Allow"] == "GET, POST"
    assert server.api.put(f"{JOBS}/abcdefghij").headers["Allow"] == "DELETE, GET, PATCH"
    assert server.api.post("/static/shared/api.js").headers["Allow"] == "GET, HEAD"
    problem(server.api.put(JOBS), 405)
    problem(server.api.post("/static/shared/api.js"), 405)


# --- changes


def test_a_job_is_changed_in_name_priority_and_budget(server: ApiServer, code: Path) -> None:
    job = server.submit(code)
    answer = server.api.patch(f"{JOBS}/{job['id']}", json={"priority": 5, "name": "better", "max_failures": 7})
    changed = answer.json()
    assert answer.status_code == 200
    assert (changed["priority"], changed["name"], changed["max_failures"]) == (5, "better", 7)
    assert changed["version"] > job["version"]


def test_a_change_of_a_job_that_is_deleted_meanwhile_is_refused(
    server: ApiServer, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = server.submit(code)
    monkeypatch.setattr(Store, "patch_job", lambda *_, **__: None)
    problem(server.api.patch(f"{JOBS}/{job['id']}", json={"name": "late"}), 409)


def test_a_wrong_change_is_rejected(server: ApiServer, code: Path) -> None:
    job = server.submit(code)
    for body in ({}, {"priority": 1001}, {"priority": "1"}, {"state": "failed"}, {"name": "\x1b[31m"}, []):
        problem(server.api.patch(f"{JOBS}/{job['id']}", json=body), 422)


def act(server: ApiServer, job: dict[str, Any], action: str) -> Any:
    return server.api.post(f"{JOBS}/{job['id']}/{action}")


def test_a_queued_job_is_held_and_released(server: ApiServer, code: Path) -> None:
    job = server.submit(code)
    assert (act(server, job, "drain").status_code, act(server, job, "drain").json()["intent"]) == (202, "hold")
    assert act(server, job, "resume").json()["intent"] == "run"


def test_a_running_job_is_drained_and_cancelled_by_intent(server: ApiServer, code: Path) -> None:
    job = server.submit(code)
    server.move(job, JobState.STARTING, JobState.RUNNING)
    assert act(server, job, "drain").json()["intent"] == "drain"
    answer = act(server, job, "cancel")
    assert (answer.status_code, answer.json()["intent"], answer.json()["state"]) == (202, "cancel", "running")
    assert "to be cancelled" in problem(act(server, job, "drain"), 409)["detail"]


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED])
def test_a_job_that_has_ended_can_only_be_resumed(server: ApiServer, code: Path, state: JobState) -> None:
    job = server.submit(code)
    server.move(job, JobState.STARTING, state, intent=JobIntent.CANCEL, outcome={"class": "oom"}, ended_at=5.0)
    for action in ("cancel", "drain"):
        detail = problem(act(server, job, action), 409)["detail"]
        assert detail.startswith(f'job "{job["name"]}" (#{job["number"]}) ')
        assert state in detail
    answer = act(server, job, "resume")
    resumed = answer.json()
    assert answer.status_code == 202
    assert [resumed[name] for name in ("state", "intent", "outcome", "ended_at")] == ["queued", "run", None, None]


def test_only_a_job_that_has_ended_can_be_deleted(server: ApiServer, code: Path) -> None:
    job = server.submit(code)
    problem(server.api.delete(f"{JOBS}/{job['id']}"), 409)
    server.move(job, JobState.CANCELLED)
    assert server.api.delete(f"{JOBS}/{job['id']}").status_code == 204
    problem(server.api.get(f"{JOBS}/{job['id']}"), 404)
    problem(server.api.delete(f"{JOBS}/{job['id']}"), 404)


def test_the_events_of_a_job_come_in_order(server: ApiServer, code: Path) -> None:
    job = server.submit(code)
    server.move(job, JobState.STARTING, JobState.FAILED)
    events = server.api.get(f"{JOBS}/{job['id']}/events").json()["items"]
    assert [(event["kind"], event["to_state"]) for event in events] == [
        ("submitted", "queued"),
        ("state", "starting"),
        ("state", "failed"),
    ]
    assert all(event["at"].endswith("Z") for event in events)


def test_half_a_surrogate_pair_in_what_a_job_left_behind_is_no_fault(server: ApiServer, code: Path) -> None:
    job = server.submit(code)
    outcome = {"class": "user_error", "message": "bad \ud800 text", "evidence": {"\udfff": ["\ud800"]}}
    server.move(job, JobState.STARTING, JobState.FAILED, outcome=outcome)
    answer = server.api.get(f"{JOBS}/{job['id']}")
    assert answer.json()["outcome"]["message"] == "bad ? text"
    assert server.api.get(JOBS).status_code == 200


def test_health_and_readiness_need_no_token(server: ApiServer) -> None:
    assert server.stranger.get("/healthz").json()["status"] == "ok"
    ready = server.stranger.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")


def test_a_server_whose_disk_forbids_writing_is_not_ready(server: ApiServer) -> None:
    runs = server.state.home.runs
    with tmpfs(runs, "200m"):
        remount(runs, writable=False)
        answer = server.stranger.get("/readyz")
    assert (answer.status_code, answer.json()["checks"]["disk"]) == (
        503,
        f"{runs} cannot be written: Read-only file system",
    )


def test_below_the_watermark_of_readyz_no_job_is_accepted(
    server: ApiServer, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    header = {"Idempotency-Key": "k"}
    accepted = server.api.post(JOBS, json=body, headers=header).json()
    monkeypatch.setattr("rekindle_service.config.home.MIN_FREE_BYTES", 1 << 60)
    assert "at least 1099511627776 MB are needed" in server.stranger.get("/readyz").json()["checks"]["disk"]
    refused = problem(server.api.post(JOBS, json=body), 507)
    assert "no job is accepted" in refused["detail"]
    assert "at least 1099511627776 MB are needed" in refused["detail"]
    again = server.api.post(JOBS, json=body, headers=header)
    assert again.json()["id"] == accepted["id"], "a repeat gets its first answer"


def test_a_full_disk_is_answered_with_507_and_nothing_half_done(
    server: ApiServer, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> Job:
        raise StorageError("the database cannot be written: no space left", full=True)

    before = run_ids(server)
    monkeypatch.setattr(Store, "add_job", full)
    assert "no space" in problem(server.api.post(JOBS, json=body), 507)["detail"]
    assert run_ids(server) == before
