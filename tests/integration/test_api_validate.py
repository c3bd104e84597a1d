"""A job that is checked and not submitted: the same errors, the place in the queue, and nothing stored."""

import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer, api_server
from rekindle.contract.states import JobState
from rekindle_service.config.settings import Quota
from rekindle_service.jobs.quotas import Quotas
from rekindle_service.scheduler.durations import DISPLACED_SECONDS

JOBS, VALIDATE = "/api/v1/jobs", "/api/v1/jobs/validate"
RECORD = {"audit"}  # the table that has a row for every request that could change something


@pytest.fixture
def private(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server(tmp_path, private_jobs=True) as running:
        yield running


def a_body(code: Path, **fields: Any) -> dict[str, Any]:
    (code / "train.py").write_text("import torch.distributed as dist\ndist.init_process_group()\n")
    return {"script": "train.py", "code": {"path": str(code)}, "device": "cpu", **fields}


def token(server: ApiServer, person: str, scope: str = "submit") -> dict[str, str]:
    answer = server.api.post("/api/v1/tokens", json={"person": person, "scope": scope})
    return {"Authorization": f"Bearer {answer.json()['token']}"}


def validated(server: ApiServer, body: dict[str, Any], **headers: Any) -> dict[str, Any]:
    answer = server.api.post(VALIDATE, json=body, **headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def running(server: ApiServer, code: Path, *devices: str, **fields: Any) -> dict[str, Any]:
    job = server.submit(code, ranks=len(devices), **fields)
    server.move(job, JobState.STARTING, JobState.RUNNING, devices=list(devices), devices_since=time.time())
    return job


def stored(server: ApiServer) -> tuple[dict[str, list[Any]], set[Path]]:
    """All rows by table, and the files of the home that are none of the database's."""
    home = server.state.home
    with closing(sqlite3.connect(home.database)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {name: list(database.execute(f'SELECT * FROM "{name}"')) for name in tables}  # noqa: S608
    found = {Path(directory, name) for directory, names, files in os.walk(home.root) for name in [*names, *files]}
    return rows, {path for path in found if not path.name.startswith(home.database.name)}


def changed(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> set[str]:
    """Names of the tables whose rows differ."""
    return {table for table in after if after[table] != before[table]}


def test_the_answer_has_every_default_the_command_and_the_slots_that_the_job_would_get(
    server: ApiServer, code: Path
) -> None:
    (code / "data").mkdir()
    (code / "data" / "big.bin").write_bytes(b"x" * 1000)
    (code / "model.py").write_text("x = 1\n")
    body = a_body(code, args=["--lr", "0.1"], ranks=2, exclude=["data/"], env={"KEY": "secret"})
    found = validated(server, body)
    assert found["command"] == [found["python"], "train.py", "--lr", "0.1"]
    assert (found["name"], found["device"], found["launch"], found["max_failures"]) == ("train", "cpu", "torchrun", 3)
    assert (found["devices"], found["slots"], found["starts_in"]) == (["cpu:0", "cpu:1"], 2, 0)
    assert (found["code_files"], found["code_bytes"]) == (2, sum(path.stat().st_size for path in code.glob("*.py")))
    assert (found["queue_position"], found["reason"], found["displaces"], found["warnings"]) == (None, "", [], [])
    assert (found["code"], found["env"]) == ({"path": str(code)}, {"KEY": "•••"})
    recipe = validated(server, {"recipe": "ddp", "device": "cpu", "args": ["--epochs", "2"]})
    assert recipe["command"][1:] == ["-m", "rekindle.recipes.ddp", "--epochs", "2"]
    assert (recipe["code_files"], recipe["code_bytes"]) == (0, 0)


BAD: dict[str, dict[str, Any]] = {
    "two targets": {"module": "train"},
    "an unknown field": {"rank": 2},
    "a script that is not there": {"script": "nope.py"},
    "a script outside": {"script": "../train.py"},
    "a script that is excluded": {"exclude": ["*.py"]},
    "a link out of the code": {"code": {"path": "linked"}},
    "an ignore file with a wrong pattern": {"code": {"path": "ignored"}},
    "too many ranks": {"ranks": 9},
    "several at once": {"ranks": 9, "script": "nope.py", "env": {"REKINDLE_X": "1"}},
    "a placeholder that there is not": {"args": ["{epoch}"]},
    "a job that there is not": {"after": ["nosuchjob1"]},
    "no job to continue": {"continue_from": "nosuchjob1"},
    "no such snapshot": {"continue_from": "ended", "continue_step": 7},
    "a priority that is too high": {"priority": 101},
    "a bundle that there is not": {"code": {"bundle": "sha256:" + "0" * 64}},
    "a repository that there is not": {"code": {"git": "file:///nonexistent/repository"}},
    "no directory": {"code": {"path": "nowhere"}},
    "Slurm": {"slurm": {}},
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_submitted_is_refused_with_the_same_errors_and_leaves_nothing(
    server: ApiServer, code: Path, tmp_path: Path, name: str
) -> None:
    bob, body = token(server, "bob"), a_body(code) | BAD[name]
    for other in ("linked", "ignored"):
        (tmp_path / other).mkdir()
        a_body(tmp_path / other)
    (tmp_path / "linked" / "data").symlink_to("/usr")
    (tmp_path / "ignored" / ".rekindleignore").write_text("!\n")
    if "path" in body["code"]:
        body["code"] = {"path": str(tmp_path / body["code"]["path"])}
    if body.get("continue_from") == "ended":
        ended = server.stranger.post(JOBS, json=a_body(code), headers=bob).json()
        server.move(ended, JobState.STARTING, JobState.FAILED)
        body["continue_from"] = ended["id"]
    before, files = stored(server)
    refused = server.stranger.post(VALIDATE, json=body, headers=bob)
    after, left = stored(server)
    assert (changed(before, after) - RECORD, left) == (set(), files)
    expected = server.stranger.post(JOBS, json=body, headers=bob)
    assert (refused.status_code, expected.status_code) == (422, 422)
    assert refused.json()["errors"] == expected.json()["errors"]


def test_limits_hold_and_nothing_counts_towards_them(server: ApiServer, code: Path) -> None:
    submitter = replace(server.state.submitter, quotas=Quotas({"*": Quota(slots=1, queued=2)}))
    server.app.state.rekindle = replace(server.state, submitter=submitter)
    bob, body = token(server, "bob"), a_body(code)
    for _ in range(3):
        assert server.stranger.post(VALIDATE, json=body, headers=bob).status_code == 200
    assert server.stranger.post(VALIDATE, json=body | {"ranks": 2}, headers=bob).json()["errors"][0]["field"] == "ranks"
    assert server.stranger.post(f"{VALIDATE}?jobs=3", json=body, headers=bob).status_code == 429
    for number in (1, 2):
        submitted = server.stranger.post(JOBS, json=body, headers=bob | {"Idempotency-Key": f"key-{number}"})
        assert (submitted.status_code, submitted.json()["number"]) == (201, number)
    refused, expected = (server.stranger.post(path, json=body, headers=bob) for path in (VALIDATE, JOBS))
    assert (refused.status_code, refused.json()["detail"]) == (expected.status_code, expected.json()["detail"])


def test_a_token_that_may_only_read_validates_nothing(server: ApiServer, code: Path) -> None:
    reader = token(server, "eve", "read")
    assert server.stranger.post(VALIDATE, json=a_body(code), headers=reader).status_code == 403
    assert server.stranger.post(VALIDATE, json=a_body(code)).status_code == 401
    for jobs in (0, 10_001, "x"):
        assert server.api.post(f"{VALIDATE}?jobs={jobs}", json=a_body(code)).status_code == 422


def test_nothing_of_a_job_that_is_validated_is_stored_and_its_key_is_not_used(
    server: ApiServer, code: Path, tmp_path: Path
) -> None:
    running(server, code, "cpu:0", "cpu:1")
    repository = tmp_path / "repository"
    git = ("git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@t")
    repository.mkdir()
    a_body(repository)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    key = {"Idempotency-Key": "one"}
    body = a_body(code, priority=5)
    before, files = stored(server)
    validated(server, body, headers=key)
    fetched = validated(server, body | {"code": {"git": repository.as_uri()}})
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert (fetched["code"]["commit"], fetched["code_files"]) == (head, 1)
    after, left = stored(server)
    assert (changed(before, after), left) == (RECORD, files)
    actions = [entry["action"] for entry in server.api.get("/api/v1/audit?limit=2").json()["items"]]
    assert actions == ["POST /api/v1/jobs/validate"] * 2
    assert server.api.post(JOBS, json=body, headers=key).json()["number"] == 2


def test_a_job_that_would_wait_has_the_position_the_reason_and_the_estimate_of_one_that_does(
    server: ApiServer, code: Path
) -> None:
    running(server, code, "cpu:0", "cpu:1", time_limit=1000.0)
    server.submit(code, time_limit=50.0)
    server.submit(code, priority=-5)
    found = validated(server, a_body(code, ranks=2))
    assert (found["devices"], found["queue_position"], found["displaces"]) == ([], 2, [])
    assert found["reason"] == "waiting for 2 CPU slots, 0 free, after #2"
    assert found["starts_in"] == pytest.approx(1050, abs=20)
    held = validated(server, a_body(code, hold=True))
    assert (held["queue_position"], held["starts_in"], held["reason"]) == (None, None, "on hold")
    later = validated(server, a_body(code, after=[server.submit(code, name="first")["id"]]))
    assert (later["starts_in"], later["reason"]) == (None, "waiting for first (#4) to succeed")


def test_running_jobs_that_would_be_stopped_are_named_and_those_of_others_are_not(
    private: ApiServer, code: Path
) -> None:
    mine = running(private, code, "cpu:0", name="mine")
    found = validated(private, a_body(code, ranks=1, priority=5))
    assert (found["displaces"], found["starts_in"]) == ([], 0), "a slot is free"
    ann, bob = token(private, "ann"), token(private, "bob")
    theirs = private.stranger.post(JOBS, json=a_body(code, name="theirs", ranks={"min": 1, "max": 2}), headers=ann)
    private.move(theirs.json(), JobState.STARTING, JobState.RUNNING, devices=["cpu:1"], devices_since=1.0)
    (stopped,) = validated(private, a_body(code, priority=5))["displaces"]
    assert stopped == {"kind": "preempt", "id": mine["id"], "number": 1, "name": "mine", "owner": mine["owner"]}
    assert validated(private, a_body(code))["displaces"] == [], "its priority is no higher"
    early = validated(private, a_body(code, priority=5))["starts_in"]
    assert early > DISPLACED_SECONDS, "the running job keeps its slot for a while"
    elastic = {"devices": ["cpu:0", "cpu:1"], "can_resize": True, "snapshot_step": 1, "snapshot_at": time.time()}
    private.move(mine, JobState.SUCCEEDED)
    private.state.store.update_progress(theirs.json()["id"], **elastic)
    answer = private.stranger.post(VALIDATE, json=a_body(code), headers=bob).json()
    assert answer["displaces"] == [{"kind": "resize", "id": None, "number": None, "name": None, "owner": None}]
    assert "theirs" not in str(answer)
    assert private.stranger.post(VALIDATE, json=a_body(code), headers=ann).json()["displaces"][0]["name"] == "theirs"
