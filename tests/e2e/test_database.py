"""The database of a real server is removed, damaged, restored and rebuilt; every submitted job is there afterwards."""

import http.client
import json
import os
import resource
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from cli_process import rekindle
from disks import fill, tmpfs
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from job_examples import open_store
from rekindle.contract.locks import lock_holder
from rekindle.contract.run_dir.paths import RunDir
from rest_api import Answer, RestApi


@pytest.fixture
def code(tmp_path: Path) -> Path:
    directory = tmp_path / "code"
    directory.mkdir()
    (directory / "train.py").write_text("print('never started')\n")
    return directory


@pytest.fixture
def server(home: Path) -> Iterator[ServeProcess]:
    with ServeProcess(home, cpu_slots=1) as server:
        yield server


def submit(api: RestApi, code: Path, name: str) -> dict[str, Any]:
    """A job that waits in the queue until it is released."""
    never = {"after": [api.jobs()["first"]["id"]]} if api.jobs() else {}
    body = {"script": "train.py", "code": {"path": str(code)}, "device": "cpu", "name": name, **never}
    job: dict[str, Any] = api.post("/jobs", body)
    api.post(f"/jobs/{job['id']}/drain")
    return job


def numbers(api: RestApi) -> dict[str, int]:
    return {name: job["number"] for name, job in api.jobs().items()}


def serve_once(home: Path) -> "subprocess.CompletedProcess[str]":
    """A server that cannot start."""
    return rekindle(home, "serve", "--port", "0")


def test_no_submitted_job_is_lost_with_the_database(server: ServeProcess, home: Path, code: Path) -> None:
    api = RestApi(server)
    submit(api, code, "first")
    backup = rekindle(home, "backup").stdout.strip()
    assert Path(backup).parent == home / "backups"
    for name in ("second", "third"):
        submit(api, code, name)
    for verb in (["restore", backup], ["rebuild"]):
        refused = rekindle(home, *verb, "--yes")
        assert refused.returncode != 0
        assert "in use by the server with pid" in refused.stderr.replace("\n", " ")
    for file in home.glob("rekindle.db*"):
        file.unlink()
    body = {"script": "train.py", "code": {"path": str(code)}, "device": "cpu", "name": "refused"}
    answer = api.request("POST", "/jobs", body)
    assert (answer.status, answer.headers["retry-after"]) == (503, "5"), answer.text
    assert f"or stop the server: rekindle restore {backup}" in answer.json()["detail"]
    server.kill()

    restored = rekindle(home, "restore", backup, "--yes")
    assert restored.stdout.startswith(
        "The database has 3 jobs.\n2 jobs on hold, not in the database and never started "
    )
    server.start()
    everything = {"first": 1, "second": 2, "third": 3}
    assert numbers(api) == everything
    held = api.jobs()["third"]
    assert (held["state"], held["intent"]) == ("queued", "hold")
    assert "made again from its run directory" in held["notice"]
    _damage_while_it_runs(api, home, code)
    server.stop()

    refused = serve_once(home)
    assert refused.returncode == 2
    assert "is damaged" in refused.stderr
    assert "rekindle restore" in refused.stderr
    rebuilt = rekindle(home, "rebuild", "--yes")
    assert rebuilt.stdout.startswith("The database has 3 jobs.\n"), rebuilt.stderr
    for file in home.glob("rekindle.db*"):
        file.unlink()  # nobody needs it
    server.start()
    assert numbers(api) == everything


def _damage_while_it_runs(api: RestApi, home: Path, code: Path) -> None:
    os.truncate(home / "rekindle.db", (home / "rekindle.db").stat().st_size // 2)
    body = {"script": "train.py", "code": {"path": str(code)}, "device": "cpu", "name": "refused"}
    for method, path in (("POST", "/jobs"), ("GET", "/jobs"), ("GET", "/experiments")):
        answer = api.request(method, path, body if method == "POST" else None)
        assert (answer.status, answer.headers["retry-after"]) == (503, "5"), f"{method} {path}: {answer.text}"
        assert "jobs keep running. Stop the server: rekindle restore" in answer.json()["detail"]
    connection = http.client.HTTPConnection(api.server.url.removeprefix("http://"), timeout=60)
    connection.request("GET", "/readyz")
    with connection.getresponse() as ready:
        assert (ready.status, json.loads(ready.read())["checks"]["database"]) == (503, "damaged")
    connection.close()


def test_a_server_without_descriptors_refuses_and_recovers(home: Path, code: Path) -> None:
    with ServeProcess(home, cpu_slots=1) as server, ExitStack() as closed:
        api = RestApi(server)
        job = submit(api, code, "first")
        pid = json.loads((home / "server.json").read_text())["pid"]
        host = server.url.removeprefix("http://")
        connections = [closed.enter_context(closing(http.client.HTTPConnection(host, timeout=60))) for _ in range(8)]
        for connection in connections:
            assert asked(connection, server, "GET", "/healthz") == 200
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(list(Path(f"/proc/{pid}/fd").iterdir())), before[1]))
        body = json.dumps({"script": "train.py", "code": {"path": str(code)}, "device": "cpu", "name": "second"})
        paths = ["/jobs", f"/jobs/{job['id']}/code", f"/jobs/{job['id']}/snapshots", "/devices", "/experiments"]
        answers = [asked(connections[0], server, "GET", f"/api/v1{path}") for path in paths]
        answers += [asked(each, server, "POST", "/api/v1/jobs", body) for each in connections[1:4]]
        assert set(answers) <= {200, 404, 503, 507}, answers
        assert 503 in answers
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        until(lambda: api.request("POST", "/jobs", json.loads(body)).status == 201, "the server accepts jobs again")
        assert "Traceback" not in (home / "server.log").read_text()


def test_a_disk_that_is_full_under_the_log_as_well_stops_neither_the_scheduler_nor_its_answers(
    tmp_path: Path, code: Path
) -> None:
    (code / "waits.py").write_text(
        f"import pathlib, time\nwhile not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.1)\n"
    )
    home = tmp_path / "home"
    with tmpfs(home, "160m"), ServeProcess(home, cpu_slots=1) as server:
        api = RestApi(server)
        first = api.post("/jobs", {"script": "waits.py", "code": {"path": str(code)}, "device": "cpu", "name": "first"})
        until(lambda: api.get(f"/jobs/{first['id']}")["state"] == "running", "the first job runs")
        ballast = fill(home)
        keeper = lock_holder(RunDir(home / "runs" / first["id"]).keeper_lock)
        assert keeper is not None
        os.kill(keeper, signal.SIGKILL)  # the scheduler must act
        (tmp_path / "go").touch()
        body = {"script": "train.py", "code": {"path": str(code)}, "device": "cpu", "name": "second"}
        refused = api.request("POST", "/jobs", body)
        assert (refused.status, refused.json()["type"]) == (507, "/problems/disk-full")
        until(
            lambda: "rekindle_scheduler_failing 0.0" not in api.outside("/metrics").text,
            "the scheduler meets the full disk",
        )
        ballast.unlink()
        second = until(lambda: accepted(api.request("POST", "/jobs", body)), "the server accepts jobs again")
        for job in (first, second):
            until(lambda job=job: api.get(f"/jobs/{job['id']}")["state"] == "succeeded", "the job ends")
        assert api.outside("/readyz").status == 200


def accepted(answer: Answer) -> dict[str, Any] | None:
    assert answer.headers["content-type"].startswith("application/"), answer.text
    return answer.json() if answer.status == 201 else None


def asked(
    connection: http.client.HTTPConnection, server: ServeProcess, method: str, path: str, body: str | None = None
) -> int:
    """The status of the answer on a connection that stays open."""
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_a_newer_database_is_refused_with_the_backup_to_go_back_to(home: Path, tmp_path: Path) -> None:
    store = open_store(home)
    before = store.backups.make("before-0010")
    store.close()
    with closing(sqlite3.connect(home / "rekindle.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    refused = serve_once(home)
    assert refused.returncode == 2
    assert f"or go back to the backup before the upgrade: rekindle restore {before}" in refused.stderr
    newer = rekindle(home, "backup", str(tmp_path / "newer.db"))
    assert newer.stdout.strip() == str(tmp_path / "newer.db")
    restored = rekindle(home, "restore", str(tmp_path / "newer.db"), "--yes")
    assert restored.returncode != 0
    assert "written by a newer version" in restored.stderr.replace("\n", " ")
    assert rekindle(home, "restore", str(before), "--yes").returncode == 0
