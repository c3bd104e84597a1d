"""Jobs by what people call them, resolved by the server over all jobs."""

from pathlib import Path
from typing import Any

from api_server import ApiServer, api_server
from job_examples import a_job
from rekindle_service.access.permissions import Scope


def add(server: ApiServer, **columns: Any) -> str:
    return server.state.store.add_job(a_job(**columns)).id


def resolve(server: ApiServer, reference: str) -> Any:
    return server.api.get("/api/v1/jobs/resolve", params={"ref": reference})


def resolved(server: ApiServer, reference: str) -> str:
    answer = resolve(server, reference)
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


def detail(server: ApiServer, reference: str, status: int = 404) -> str:
    answer = resolve(server, reference)
    assert answer.status_code == status, answer.text
    return answer.json()["detail"]


def test_a_job_is_found_by_id_then_number_then_name_then_prefix(server: ApiServer) -> None:
    first = add(server, id="aaaaaaaaaa", name="digits")
    second = add(server, id="aaaabbbbbb", name="digits")
    third = add(server, id="1234567890", name="1")
    fourth = add(server, id="dddddddddd", name="aaaab")
    assert resolved(server, "aaaaaaaaaa") == first
    assert resolved(server, "1") == resolved(server, "#1") == first  # and not the third, whose name is 1
    assert resolved(server, "1234567890") == resolved(server, "1234") == third
    assert resolved(server, "digits") == second
    assert resolved(server, "aaaab") == fourth  # a name, before the start of an id
    assert resolved(server, "aaaabb") == second
    ambiguous = detail(server, "aaaa", 409)
    assert "aaaaaaaaaa (#1 digits)" in ambiguous
    assert "Give more of the id, or the number" in ambiguous
    assert "No job is called 'aaa', nor has it as id or number (of an id, give at least 4" in detail(server, "aaa")


def test_names_and_ids_are_completed_among_all_jobs_each_name_once(server: ApiServer) -> None:
    def completed(prefix: str, limit: int = 50) -> list[str]:
        answer = server.api.get("/api/v1/jobs/completions", params={"prefix": prefix, "limit": limit})
        return [job["id"] for job in answer.json()["items"]]

    add(server, id="aaaaaaaaaa", name="digits")
    latest = add(server, id="aaaabbbbbb", name="digits")
    other = add(server, id="cccccccccc", name="dig_%")
    assert completed("dig") == completed("") == [other, latest]
    assert completed("dig", limit=1) == [other]
    assert completed("dig_") == [other]
    assert completed("aaaab") == [latest]
    assert completed("aaa") == completed("Dig") == []


def test_an_old_job_is_found_among_thousands(server: ApiServer) -> None:
    old = add(server, id="oldest0000", name="first run")
    with server.state.store.writing() as session:
        session.add_all(a_job(number=number, version=number, name=f"sweep-{number}") for number in range(2, 2002))
    for reference in ("first run", "1", "olde"):
        assert resolved(server, reference) == old
    assert detail(server, "fisrt run").endswith("did you mean 'first run' (#1)?")


def test_a_hint_goes_by_likeness_and_not_by_age(server: ApiServer) -> None:
    for name in ("ResNet50", "digits", "letters", "words"):
        add(server, name=name)
    assert detail(server, "resnet5O").endswith("did you mean 'ResNet50' (#1)?")
    assert detail(server, "zzz").endswith("the latest are 'words' (#4), 'letters' (#3), 'digits' (#2), 'ResNet50' (#1)")
    assert detail(server, "#77").startswith("No job is called '#77', nor has it as id or number")


def test_a_hostile_reference_finds_nothing(server: ApiServer) -> None:
    add(server, name="digits")
    for reference in ("", "%", "_", "a/b", "..", "\0", "9" * 400, "é", "🔥" * 100, "' OR 1=1 --"):
        assert len(detail(server, reference)) < 500


def test_a_reference_is_required_and_bounded(server: ApiServer) -> None:
    assert server.api.get("/api/v1/jobs/resolve").status_code == 422
    assert resolve(server, "x" * 501).status_code == 422


def test_jobs_of_others_are_neither_found_nor_suggested_where_jobs_are_private(tmp_path: Path) -> None:
    with api_server(tmp_path, private_jobs=True) as server:
        found = add(server, name="secret", owner="anna")
        tokens = server.state.access.tokens
        for person, status in (("anna", 200), ("bob", 404)):
            token = tokens.create(person, Scope.READ, "root").secret
            for reference in (found, "1", "secret", found[:6], "secrte"):
                headers = {"Authorization": f"Bearer {token}"}
                answer = server.stranger.get("/api/v1/jobs/resolve", params={"ref": reference}, headers=headers)
                assert answer.status_code == (404 if reference == "secrte" else status)
                assert person == "anna" or "there is no job yet" in answer.text
