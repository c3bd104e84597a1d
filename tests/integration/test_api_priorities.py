"""Priorities over HTTP: how high each person may go, by scope and by name, at every place where one is given."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from rekindle_service.access.permissions import Permissions
from rekindle_service.config.settings import PriorityCeilings

JOBS = "/api/v1/jobs"


@pytest.fixture
def lab(server: ApiServer, code: Path) -> Iterator[ApiServer]:
    """Bob may give 100, as everybody; ann has a ceiling of her own."""
    access = server.state.access
    access.permissions = replace(access.permissions, ceilings=PriorityCeilings(people={"ann": 500}))
    (code / "train.py").write_text("print('hi')\n")
    yield server
    access.permissions = Permissions()


def token(server: ApiServer, person: str, scope: str = "submit") -> dict[str, str]:
    answer = server.api.post("/api/v1/tokens", json={"person": person, "scope": scope})
    return {"Authorization": f"Bearer {answer.json()['token']}"}


def submitted(server: ApiServer, code: Path, headers: dict[str, str], priority: int) -> Any:
    body = {"script": "train.py", "code": {"path": str(code)}, "device": "cpu", "priority": priority}
    return server.stranger.post(JOBS, json=body, headers=headers)


def refusal(answer: Any) -> tuple[int, str, str, Any]:
    (error,) = answer.json()["errors"]
    assert "administrator" in error["hint"]
    return answer.status_code, error["field"], error["rule"], error["value"]


@pytest.mark.parametrize(
    ("person", "scope", "highest"),
    [("bob", "submit", 100), ("ann", "submit", 500), ("root2", "admin", 1000), ("ann", "admin", 500)],
)
def test_the_ceiling_is_that_of_the_person_or_else_of_the_scope(
    lab: ApiServer, code: Path, person: str, scope: str, highest: int
) -> None:
    headers = token(lab, person, scope)
    assert submitted(lab, code, headers, highest).status_code == 201
    assert submitted(lab, code, headers, -1000).status_code == 201
    if highest < 1000:
        rule = f"must be at most {highest} for {person} (setting max_priority)"
        assert refusal(submitted(lab, code, headers, highest + 1)) == (422, "priority", rule, highest + 1)


def test_a_priority_is_not_raised_above_the_ceiling_later_but_lowered_by_everybody(lab: ApiServer, code: Path) -> None:
    bob = token(lab, "bob")
    url = f"{JOBS}/{submitted(lab, code, bob, 5).json()['id']}"
    rule = "must be at most 100 for bob (setting max_priority)"
    refused = lab.stranger.patch(url, json={"priority": 1000, "name": "urgent"}, headers=bob)
    assert refusal(refused) == (422, "priority", rule, 1000)
    assert (lab.api.get(url).json()["priority"], lab.api.get(url).json()["name"]) == (5, "train")
    assert lab.api.patch(url, json={"priority": 1000}).status_code == 200
    assert lab.stranger.patch(url, json={"name": "renamed"}, headers=bob).status_code == 200
    assert lab.stranger.patch(url, json={"priority": 900}, headers=bob).json()["priority"] == 900
    assert lab.stranger.patch(url, json={"priority": 901}, headers=bob).status_code == 422


@pytest.mark.parametrize("kind", [{"matrix": {"--lr": [0.1, 0.2]}}, {"array": "0-3"}], ids=["matrix", "array"])
def test_an_experiment_has_the_same_ceiling(lab: ApiServer, code: Path, kind: dict[str, Any]) -> None:
    request = {"base": {"script": str(code / "train.py"), "device": "cpu", "priority": 101}, **kind}
    refused = lab.stranger.post("/api/v1/experiments", json=request, headers=token(lab, "bob"))
    assert refusal(refused)[:2] == (422, "base.priority")
    assert lab.api.get(JOBS).json()["items"] == []
    assert lab.api.post("/api/v1/experiments", json=request).status_code == 201


def test_who_may_not_change_a_job_of_nobody_is_referred_to_an_administrator_once(lab: ApiServer, code: Path) -> None:
    job = lab.submit(code)
    lab.state.store.update_progress(job["id"], owner=None)
    refused = lab.stranger.patch(f"{JOBS}/{job['id']}", json={"name": "mine"}, headers=token(lab, "bob"))
    assert (refused.status_code, refused.json()["detail"].count("administrator")) == (403, 1)
