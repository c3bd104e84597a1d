"""Every route with every kind of person: what is not theirs stays unknown, what they may not change stays as it is."""

import io
import itertools
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts

from api_server import TOKEN, ApiServer, api_server
from job_records import record_attempt
from rekindle.contract.files import write_json
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.states import JobState
from rekindle_service.access.access_control import RateLimit
from rekindle_service.access.permissions import Scope, changes_something
from rekindle_service.api.auth import OPEN_ROUTES

SECRET = "annas-secret"  # in everything of anna's that has a text
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
REFUSED = {"nobody": 401, "wrong": 401, "expired": 401, "revoked": 401}
BODIES: dict[str, Any] = {
    "PATCH /api/v1/jobs/{job_id}": {"priority": 3},
    "POST /api/v1/jobs/{job_id}/chaos": {"fault": "kill"},
    "POST /api/v1/tokens": {"person": "eve", "scope": "admin"},
}
NEEDED = {
    "search": {"q": SECRET},
    "resolve": {"ref": "JOB"},
}
ADMINS = {("GET", "/api/v1/audit"), ("HEAD", "/api/v1/audit"), ("POST", "/api/v1/tokens")}
STREAM = "/api/v1/events"


@dataclass
class Lab:
    """Anna's finished job and her experiment, and the headers of everybody who may come."""

    server: ApiServer
    code: Path
    people: dict[str, dict[str, str]] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)
    experiment: dict[str, Any] = field(default_factory=dict)

    def token(self, person: str, scope: Scope, **options: Any) -> str:
        return self.server.state.access.tokens.create(person, scope, "root", **options).secret

    def request(self, person: str, method: str, path: str, **options: Any) -> Any:
        return self.server.stranger.request(method, path, headers=self.people[person], **options)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def lab(root: Path, private: bool) -> Iterator[Lab]:
    (root / "code").mkdir(parents=True)
    with api_server(root, private_jobs=private) as server:
        found = Lab(server, root / "code")
        found.people = {
            "nobody": {},
            "wrong": bearer("rk_wrong"),
            "expired": bearer(found.token("bob", Scope.ADMIN, seconds=1e-9)),
            "revoked": bearer(_revoked(found)),
            "reader": bearer(found.token("bob", Scope.READ)),
            "other": bearer(found.token("bob", Scope.SUBMIT)),
            "owner": bearer(found.token("anna", Scope.SUBMIT)),
            "own reader": bearer(found.token("anna", Scope.READ)),
            "admin": bearer(TOKEN),
        }
        _fill(found)
        yield found


def _revoked(found: Lab) -> str:
    new = found.server.state.access.tokens.create("bob", Scope.ADMIN, "root")
    found.server.state.access.tokens.revoke(new.row.id)
    return new.secret


def _fill(found: Lab) -> None:
    (found.code / "train.py").write_text(f"print('{SECRET}')\n")
    body = {"name": SECRET, "script": "train.py", "code": {"path": str(found.code)}, "device": "cpu"}
    answer = found.request("owner", "POST", "/api/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    found.job = answer.json()
    base = {key: value for key, value in body.items() if key != "name"}
    request = {"name": SECRET, "base": base, "matrix": {"--lr": [1]}}
    answer = found.request("owner", "POST", "/api/v1/experiments", json=request)
    assert answer.status_code == 201, answer.text
    found.experiment = answer.json()
    run_dir = found.server.run_dir(found.job)
    rank = record_attempt(run_dir).rank(0)
    outcome = Outcome(OutcomeClass.USER_ERROR, SECRET).to_json()
    ended = {"attempt": 1, "outcome": outcome, "last_step": 1, "snapshot_step": None}
    Journal(run_dir.journal).write(RecordType.ATTEMPT_ENDED, **ended)
    rank.log("stdout").write_text(f"{SECRET}\n")
    write_json(rank.root / "error.json", {"message": SECRET})
    found.server.move(found.job, JobState.STARTING, JobState.RUNNING, devices=["cpu:0"], run=1, attempt=1)


def routes(found: Lab) -> list[tuple[str, str, str]]:
    """Template, method and path of every route, with anna's job and experiment in the path."""
    values = {"job_id": found.job["id"], "experiment_id": found.experiment["id"], "rank": "0", "step": "1"}
    values |= {"other": found.job["id"]}
    values |= {"token_id": "abcdefghij", "path:path": "shared/api.js"}
    every = []
    for context in iter_route_contexts(found.server.app.routes):
        path = context.path
        for name, value in values.items():
            path = path.replace("{" + name + "}", value)
        methods = set(context.methods or {"GET"}) & set(METHODS)
        every += [(context.path, method, path) for method in sorted(methods)]
    assert len(every) > 50
    return every


def query(found: Lab, template: str) -> dict[str, str]:
    needed = next((values for part, values in NEEDED.items() if part in template), {})
    return {name: found.job["id"] if value == "JOB" else value for name, value in needed.items()}


def sweep(found: Lab, person: str) -> Iterator[tuple[str, str, Any]]:
    for template, method, path in routes(found):
        if (method, path) in OPEN_ROUTES or (template == STREAM and REFUSED.get(person) is None):
            continue
        body = BODIES.get(f"{method} {template}")
        answer = found.request(person, method, path, json=body, params=query(found, template))
        yield template, method, answer


@pytest.fixture(scope="module")
def open_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("open"), private=False) as found:
        yield found


@pytest.fixture(scope="module")
def private_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("private"), private=True) as found:
        yield found


@pytest.mark.parametrize("private", [False, True])
def test_every_route_refuses_what_a_person_may_not_do(tmp_path: Path, private: bool) -> None:
    with lab(tmp_path, private) as found:
        before = found.server.state.store.job(found.job["id"])
        for person, (template, method, answer) in itertools.chain.from_iterable(
            ((each, row) for row in sweep(found, each)) for each in found.people if each not in ("owner", "admin")
        ):
            where = (person, method, template, answer.status_code, answer.text[:200])
            if person in REFUSED:
                assert answer.status_code in (401, 429), where
            elif "{job_id}" in template and template.startswith("/api/"):
                _check_foreign_job(person, method, template, answer, private, where)
            elif (changes_something(method, template) and "reader" in person) or (method, template) in ADMINS:
                assert answer.status_code == 403, where
            if person not in REFUSED and private and not person.startswith("own"):
                _check_nothing_shown(found, answer, where)
        assert found.server.state.store.job(found.job["id"]) == before
        assert [row.person for row in found.server.state.access.tokens.all("eve")] == []


def _check_foreign_job(person: str, method: str, template: str, answer: Any, private: bool, where: Any) -> None:
    changes = changes_something(method, template.replace("{job_id}", "a").replace("{rank}", "0"))
    if changes and "reader" in person:
        assert answer.status_code == 403, where
    elif private and not person.startswith("own"):
        assert answer.status_code == 404, where
    elif changes:
        assert (answer.status_code, answer.json()["type"]) == (403, "/problems/not-owner"), where
    else:
        assert answer.status_code not in (401, 403), where


def _check_nothing_shown(found: Lab, answer: Any, where: Any) -> None:
    shown = answer.text.replace(f"no job '{found.job['id']}'", "").replace(found.experiment["id"], "E", 1)
    assert SECRET not in shown, where
    assert f'"{found.job["id"]}"' not in shown, where


def test_the_owner_and_the_administrator_reach_everything(private_lab: Lab) -> None:
    for person in ("owner", "admin"):
        for path in ("", "/attempts", "/events", "/ranks", "/ranks/0/log", "/logs.zip", "/configuration"):
            answer = private_lab.request(person, "GET", f"/api/v1/jobs/{private_lab.job['id']}{path}")
            assert answer.status_code == 200, (person, path, answer.text)
        experiment = private_lab.request(person, "GET", f"/api/v1/experiments/{private_lab.experiment['id']}")
        assert experiment.status_code == 200
        listed = private_lab.request(person, "GET", "/api/v1/jobs", params={"owner": "anna"}).json()["items"]
        assert {job["owner"] for job in listed} == {"anna"}
    patched = private_lab.request("owner", "PATCH", f"/api/v1/jobs/{private_lab.job['id']}", json={"priority": 5})
    assert patched.json()["priority"] == 5


def test_nothing_of_a_private_job_gets_into_a_job_of_others(private_lab: Lab) -> None:
    archive = _archive(private_lab.code)
    bundle = private_lab.request("owner", "POST", "/api/v1/bundles", content=archive).json()["id"]
    home = private_lab.server.state.home
    body = {"script": "train.py", "device": "cpu"}

    def submit(person: str, **fields: Any) -> Any:
        return private_lab.request(person, "POST", "/api/v1/jobs", json={**body, **fields})

    mine = {"code": {"path": str(private_lab.code)}}
    tries = {
        "code.bundle": {"code": {"bundle": bundle}},
        "after": {**mine, "after": [private_lab.job["id"]]},
        "continue_from": {**mine, "continue_from": private_lab.job["id"]},
        "code.path": {"code": {"path": str(home.run_dir(private_lab.job["id"]).code)}},
    }
    for name, fields in tries.items():
        answer = submit("other", **fields)
        assert answer.status_code == 422, (name, answer.text)
        assert [error["field"] for error in answer.json()["errors"]] == [name], answer.text
    assert submit("owner", code={"bundle": bundle}).status_code == 201
    assert private_lab.request("other", "POST", "/api/v1/bundles", content=archive).status_code == 200
    assert submit("other", code={"bundle": bundle}).status_code == 201


def _archive(code: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(code / "train.py", "train.py")
    return packed.getvalue()


def test_an_idempotency_key_of_one_person_never_returns_the_job_of_another(open_lab: Lab) -> None:
    body = {"script": "train.py", "device": "cpu", "code": {"path": str(open_lab.code)}}
    jobs = {}
    for person in ("owner", "other", "admin", "owner"):
        headers = {**open_lab.people[person], "Idempotency-Key": "same"}
        answer = open_lab.server.stranger.post("/api/v1/jobs", json=body, headers=headers)
        jobs.setdefault(person, answer.json())
        assert answer.json()["id"] == jobs[person]["id"]
    assert len({job["id"] for job in jobs.values()}) == 3
    assert [jobs[person]["owner"] for person in ("owner", "other")] == ["anna", "bob"]


def test_the_event_stream_names_only_what_may_be_read_and_ends_with_the_token(private_lab: Lab) -> None:
    tokens = private_lab.server.state.access.tokens
    new = tokens.create("bob", Scope.SUBMIT, "root")
    reading = {"headers": bearer(new.secret), "params": {"last_event_id": 0}}
    with private_lab.server.stranger.stream("GET", STREAM, **reading) as stream:
        body = {"recipe": "single", "device": "cpu", "name": "of-bob"}
        assert private_lab.request("other", "POST", "/api/v1/jobs", json=body).status_code == 201
        tokens.revoke(new.row.id)
        lines = list(stream.iter_lines())
    text = "\n".join(lines)
    assert "event: hello" in text
    assert SECRET not in text
    assert private_lab.job["id"] not in text
    followed = private_lab.request("reader", "GET", STREAM, params={"job": private_lab.job["id"]})
    assert followed.status_code == 404


def test_private_slots_show_that_they_are_held_and_not_by_whom(private_lab: Lab) -> None:
    [held, *_] = private_lab.request("other", "GET", "/api/v1/devices").json()["items"]
    assert (held["held"], held["job"], held["job_name"]) == (True, None, None)
    metrics = private_lab.request("other", "GET", "/metrics").text
    assert 'rekindle_slots{device="cpu",state="held"} 1.0' in metrics
    assert private_lab.job["id"] not in metrics
    assert private_lab.job["id"] in private_lab.request("owner", "GET", "/metrics").text


def test_a_token_ends_by_time(open_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = open_lab.token("carl", Scope.READ, seconds=60)
    assert open_lab.server.stranger.get("/api/v1/me", headers=bearer(secret)).status_code == 200
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)
    assert open_lab.server.stranger.get("/api/v1/me", headers=bearer(secret)).status_code == 401


def test_requests_of_one_person_are_limited_and_those_of_others_are_not(
    open_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_lab.server.state.access, "requests", RateLimit(rate=0.001, burst=5))
    answers = [open_lab.request("owner", "GET", "/api/v1/me") for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert "anna sends more requests than the setting request_rate allows" in answers[-1].json()["detail"]
    assert open_lab.request("other", "GET", "/api/v1/me").status_code == 200


def test_clients_get_what_they_may(private_lab: Lab) -> None:
    """The page asks for this to know what to offer."""
    me = {person: private_lab.request(person, "GET", "/api/v1/me").json() for person in ("reader", "owner", "admin")}
    assert {person: (found["person"], found["scope"]) for person, found in me.items() if person != "admin"} == {
        "reader": ("bob", "read"),
        "owner": ("anna", "submit"),
    }
    assert me["admin"]["scope"] == "admin"
