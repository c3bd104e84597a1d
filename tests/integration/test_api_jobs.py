import json
import threading
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.jobs.cluster_rules import NO_SLURM
from rekindle_service.store.tables import Job

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


def test_a_job_is_submitted_with_defaults_and_read_back(server: ApiServer, code: Path) -> None:
    (code / "train.py").write_text("")
    answer = server.api.post(JOBS, json={"script": str(code / "train.py"), "device": "cpu"})
    job = answer.json()
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"{JOBS}/{job['id']}"
    assert server.api.get(answer.headers["Location"]).json() == job
    expected = {
        "number": 1,
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


def test_every_field_of_the_contract_is_in_a_job(server: ApiServer, code: Path) -> None:
    job = server.submit(code)
    contract = (
        "id number name state phase intent attempt world_size ranks devices device epoch epochs step steps progress "
        "eta_seconds steps_per_second restarts outcome next_try_at queue_position waiting_for priority max_failures "
        "target args env after snapshot snapshot_step notice created_at started_at ended_at goodput version python warm"
    )
    assert set(contract.split()) <= set(job)


def test_values_of_the_environment_are_never_told(server: ApiServer, code: Path) -> None:
    job = server.submit(code, env={"WANDB_API_KEY": "hunter2", "MODE": "fast"})
    assert job["env"] == {"WANDB_API_KEY": "•••", "MODE": "•••"}
    for path in ("", f"/{job['id']}", f"/{job['id']}/events", f"/{job['id']}/attempts"):
        assert "hunter2" not in server.api.get(JOBS + path).text


def test_a_repeat_with_the_same_key_gets_the_first_job(server: ApiServer, code: Path) -> None:
    (code / "train.py").write_text("")
    body = {"script": str(code / "train.py"), "device": "cpu"}
    ids = [server.api.post(JOBS, json=body, headers={"Idempotency-Key": key}).json()["id"] for key in ("a", "a", "b")]
    assert ids[0] == ids[1] != ids[2]
    spaced = json.dumps({"after": [], **dict(reversed(body.items()))}, indent=2)
    repeat = {"Idempotency-Key": "a", "Content-Type": "application/json"}
    assert server.api.post(JOBS, content=spaced, headers=repeat).json()["id"] == ids[0]


def test_a_key_of_another_request_is_rejected(server: ApiServer, code: Path) -> None:
    (code / "train.py").write_text("")
    body = {"script": str(code / "train.py"), "device": "cpu"}
    header = {"Idempotency-Key": "a"}
    job = server.api.post(JOBS, json=body, headers=header).json()
    answer = server.api.post(JOBS, json={**body, "priority": 3}, headers=header)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["field"], error["value"]) == ("Idempotency-Key", "a")
    assert job["id"] in error["rule"]
    assert "key of its own" in error["hint"]
    assert len(server.state.store.lists.jobs()) == 1


def test_the_same_key_at_the_same_moment_makes_one_job(server: ApiServer, code: Path) -> None:
    (code / "train.py").write_text("")
    body = {"script": str(code / "train.py"), "device": "cpu"}
    ids: list[str] = []
    threads = [
        threading.Thread(
            target=lambda: ids.append(server.api.post(JOBS, json=body, headers={"Idempotency-Key": "x"}).json()["id"])
        )
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 6
    assert len(set(ids)) == 1
    assert len(list(server.state.home.runs.iterdir())) == 1


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"ranks": 0}, "ranks", "whole number from 1"),
        ({"ranks": -3}, "ranks", "whole number from 1"),
        ({"ranks": True}, "ranks", "whole number from 1"),
        ({"ranks": "2"}, "ranks", "whole number from 1"),
        ({"ranks": 10**40}, "ranks", "whole number from 1"),
        ({"ranks": {"min": 0, "max": 1}}, "ranks.min", "greater than or equal to 1"),
        ({"ranks": {"min": 2, "max": 1}}, "ranks", "min must not be greater"),
        ({"ranks": 3}, "ranks", "exceeds the 2 CPU slots"),
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
        ({"script": "../train.py"}, "script", "must be in the code directory"),
        ({"script": "x" * 300}, "script", "255 bytes"),
        ({"code": {"path": "relative"}}, "code.path", "existing directory"),
        ({"code": {"path": "/" + "y" * 300}}, "code.path", "255 bytes"),
        ({"code": {}}, "code", "exactly one of path, bundle and git must be given, not none"),
        ({"code": {"path": "/", "ref": "main"}}, "code", "ref requires git"),
        ({"after": ["nonesuch12"]}, "after", "jobs that exist"),
        ({"snapshot": {"keep": 0}}, "snapshot.keep", "greater than or equal to 1"),
        ({"snapshot": {"monitor": "-"}}, "snapshot.monitor", "must be the name of a logged metric"),
        ({"snapshot": {"auto": "yes"}}, "snapshot.auto", "valid boolean"),
        ({"nodes": 2}, "nodes", "must be 1"),
    ],
)
def test_a_wrong_field_is_answered_with_field_rule_value_and_hint(
    server: ApiServer, code: Path, fields: dict[str, Any], field: str, words: str
) -> None:
    import json

    (code / "train.py").write_text("")
    body = {"script": "train.py", "code": {"path": str(code)}, "device": "cpu", **fields}
    answer = server.api.post(JOBS, content=json.dumps(body), headers={"Content-Type": "application/json"})
    errors = problem(answer, 422)["errors"]
    assert field in [error["field"] for error in errors]
    assert any(words in error["rule"] for error in errors), errors
    assert all(set(error) == {"field", "rule", "value", "hint"} for error in errors)
    assert server.api.get(JOBS).json()["items"] == []


@pytest.mark.parametrize(
    ("fields", "field", "hint"),
    [
        ({"rank": 2}, "rank", "did you mean 'ranks'?"),
        ({"max_failure": 2}, "max_failure", "did you mean 'max_failures'?"),
        ({"launch": "torchurn"}, "launch", "did you mean 'torchrun'?"),
        ({"env": {"X": {"fom": "HOME"}}}, "env.X.fom", "did you mean 'from'?"),
        ({"snapshot": {"every_step": 5}}, "snapshot.every_step", "did you mean 'every_steps'?"),
        ({"ranks": {"min": 1, "max": 1, "maximum": 1}}, "ranks.maximum", "did you mean 'max'?"),
        ({"code": {"path": "/src", "pth": "x"}}, "code.pth", "did you mean 'path'?"),
        ({"zzz": 1}, "zzz", "known here: args, env"),
    ],
)
def test_a_misspelt_field_is_refused_with_a_guess(
    server: ApiServer, fields: dict[str, Any], field: str, hint: str
) -> None:
    errors = problem(server.api.post(JOBS, json={"recipe": "ddp", **fields}), 422)["errors"]
    (error,) = [error for error in errors if error["field"] == field]
    assert error["hint"].startswith(hint)
    patched = problem(server.api.post("/login", json={"tokn": "x"}), 422)["errors"]
    assert "did you mean 'token'?" in [error["hint"] for error in patched]


@pytest.mark.parametrize(
    ("fields", "field", "hint"),
    [
        ({"max_failures": -1}, "max_failures", "omit it for the default, 3"),
        ({"hang_timeout": 0}, "hang_timeout", "omit it"),
        ({"device": "gpu"}, "device", "did you mean 'cuda'?"),
        ({"snapshot": {"keep": 0}}, "snapshot.keep", "omit it for the default, 3"),
        ({"nodes": 2}, "nodes", NO_SLURM),
        ({"name": "a\nb"}, "name", "line breaks are control characters"),
        ({"env": {"PET_X": "1"}}, "env", "choose a name that begins with none of REKINDLE_, PET_, TORCHELASTIC_"),
    ],
)
def test_a_value_that_will_not_do_is_refused_with_what_to_do_instead(
    server: ApiServer, fields: dict[str, Any], field: str, hint: str
) -> None:
    errors = problem(server.api.post(JOBS, json={"recipe": "ddp", **fields}), 422)["errors"]
    assert [(error["field"], error["hint"]) for error in errors] == [(field, hint)]


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
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
    ],
)
def test_a_body_that_is_no_json_object_is_a_problem_and_no_fault(
    server: ApiServer, content: bytes, content_type: str
) -> None:
    headers = [(b"content-type", content_type.encode("latin-1"))]
    answer = server.api.post(JOBS, content=content, headers=headers)
    assert problem(answer, answer.status_code)
    assert answer.status_code in (400, 422)


def test_a_body_over_ten_megabytes_is_refused(server: ApiServer) -> None:
    body = b'{"args": ["' + b"x" * (10 << 20) + b'"]}'
    assert (
        "10 MiB"
        in problem(server.api.post(JOBS, content=body, headers={"Content-Type": "application/json"}), 413)["detail"]
    )
    chunks = (body[start : start + 65536] for start in range(0, len(body), 65536))
    problem(server.api.post(JOBS, content=chunks, headers={"Content-Type": "application/json"}), 413)


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "é", "a\tb"])
def test_a_strange_idempotency_key_is_refused(server: ApiServer, key: str) -> None:
    answer = server.api.post(JOBS, json={"recipe": "ddp"}, headers=[(b"idempotency-key", key.encode())])
    assert problem(answer, 422)["errors"][0]["field"] == "Idempotency-Key"


def test_lists_come_in_pieces_newest_first(server: ApiServer, code: Path) -> None:
    made = [server.submit(code, name=f"job {index}")["id"] for index in range(5)]
    seen: list[str] = []
    cursor = None
    while True:
        page = server.api.get(JOBS, params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        seen += [job["id"] for job in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == made[::-1]
    assert [job["id"] for job in server.api.get(JOBS, params={"name": "job 3"}).json()["items"]] == [made[3]]
    assert server.api.get(JOBS, params={"state": "running"}).json()["items"] == []


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "limit=x",
        "cursor=0",
        "cursor=x",
        f"cursor={'9' * 30}",
        "state=paused",
        f"name={'n' * 300}",
    ],
)
def test_a_wrong_query_is_refused(server: ApiServer, query: str) -> None:
    errors = problem(server.api.get(f"{JOBS}?{query}"), 422)["errors"]
    assert errors[0]["field"] == query.partition("=")[0]


@pytest.mark.parametrize("job_id", ["abcdefghij", "x", "ABCDEFGHIJ", "%00", "a%2fb", "%ff%fe", "e\u0301", "0" * 3000])
def test_an_unknown_job_is_a_404_that_tells_where_to_look(server: ApiServer, job_id: str) -> None:
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


@pytest.mark.parametrize(
    "body", [{}, {"priority": 1001}, {"priority": "1"}, {"state": "failed"}, {"name": "\x1b[31m"}, []]
)
def test_a_wrong_change_is_refused(server: ApiServer, code: Path, body: Any) -> None:
    job = server.submit(code)
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
def test_what_is_over_cannot_be_cancelled_or_drained(server: ApiServer, code: Path, state: JobState) -> None:
    job = server.submit(code)
    server.move(job, JobState.STARTING, state)
    for action in ("cancel", "drain"):
        detail = problem(act(server, job, action), 409)["detail"]
        assert detail.startswith(f'job "{job["name"]}" (#{job["number"]}) ')
        assert state in detail


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED])
def test_a_job_that_has_ended_is_sent_back_to_the_queue(server: ApiServer, code: Path, state: JobState) -> None:
    job = server.submit(code)
    server.move(job, JobState.STARTING, state, intent=JobIntent.CANCEL, outcome={"class": "oom"}, ended_at=5.0)
    answer = act(server, job, "resume")
    resumed = answer.json()
    assert answer.status_code == 202
    assert [resumed[name] for name in ("state", "intent", "outcome", "ended_at")] == ["queued", "run", None, None]


def test_only_what_is_over_can_be_deleted_and_its_story_ends_there(server: ApiServer, code: Path) -> None:
    job = server.submit(code)
    problem(server.api.delete(f"{JOBS}/{job['id']}"), 409)
    server.move(job, JobState.CANCELLED)
    assert server.api.delete(f"{JOBS}/{job['id']}").status_code == 204
    problem(server.api.get(f"{JOBS}/{job['id']}"), 404)
    problem(server.api.delete(f"{JOBS}/{job['id']}"), 404)


def test_the_story_of_a_job_is_told_in_order(server: ApiServer, code: Path) -> None:
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


def test_slots_tell_who_holds_them(server: ApiServer, code: Path) -> None:
    job = server.submit(code)
    server.move(job, JobState.STARTING, devices=["cpu:1"])
    items = server.api.get("/api/v1/devices").json()["items"]
    assert [(slot["name"], slot["job"]) for slot in items] == [("cpu:0", None), ("cpu:1", job["id"])]


def test_health_needs_no_token_and_readiness_looks_at_the_database(server: ApiServer) -> None:
    assert server.stranger.get("/healthz").json()["status"] == "ok"
    ready = server.stranger.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")


def test_below_the_watermark_of_readyz_no_job_is_accepted(
    server: ApiServer, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code / "train.py").write_text("")
    accepted = server.api.post(JOBS, json={"script": str(code / "train.py")}, headers={"Idempotency-Key": "k"}).json()
    monkeypatch.setattr("rekindle_service.config.home.MIN_FREE_BYTES", 1 << 60)
    assert "at least 1099511627776 MB are needed" in server.stranger.get("/readyz").json()["checks"]["disk"]
    refused = problem(server.api.post(JOBS, json={"script": str(code / "train.py")}), 507)
    assert "no job is accepted" in refused["detail"]
    assert "at least 1099511627776 MB are needed" in refused["detail"]
    again = server.api.post(JOBS, json={"script": str(code / "train.py")}, headers={"Idempotency-Key": "k"})
    assert again.json()["id"] == accepted["id"], "a repeat gets its first answer"


def test_a_full_disk_is_answered_with_507_and_nothing_half_done(
    server: ApiServer, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rekindle_service.store import StorageError, Store

    def full(*_: object, **__: object) -> Job:
        raise StorageError("the database cannot be written: no space left", full=True)

    monkeypatch.setattr(Store, "add_job", full)
    (code / "train.py").write_text("")
    body = {"script": str(code / "train.py"), "device": "cpu"}
    assert "no space" in problem(server.api.post(JOBS, json=body), 507)["detail"]
    assert list(server.state.home.runs.iterdir()) == []
