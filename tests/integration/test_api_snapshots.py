"""What can be done with the snapshots of a job, and what it runs with."""

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from rekindle.contract.files import write_json
from rekindle.contract.run_dir.script_files import Checkpoint, Observations
from rekindle.contract.run_dir.snapshot_dir import read_pins
from rekindle.contract.states import JobState
from rekindle_service.store.tables import Job
from shared_server import one_server  # noqa: F401 the fixture server
from snapshot_files import write_snapshot

Take = Callable[[int], Path]


@pytest.fixture
def job(server: ApiServer, code: Path) -> dict[str, Any]:
    return server.submit(code)


@pytest.fixture
def take(server: ApiServer, job: dict[str, Any]) -> Take:
    def snapshot(step: int) -> Path:
        return write_snapshot(server.run_dir(job).snapshots, step)

    return snapshot


def url(job: dict[str, Any], path: str) -> str:
    return f"/api/v1/jobs/{job['id']}/{path}"


def row_of(server: ApiServer, job: dict[str, Any]) -> Job:
    row = server.state.store.job(job["id"])
    assert row is not None
    return row


def fail(server: ApiServer, job: dict[str, Any]) -> None:
    server.move(job, JobState.STARTING, run=1)
    server.move(job, JobState.FAILED)


def test_a_pin_is_kept_until_it_is_removed(server: ApiServer, job: dict[str, Any], take: Take) -> None:
    take(10)
    take(20)
    assert server.api.put(url(job, "snapshots/10/pin")).status_code == 204
    assert read_pins(server.run_dir(job).pins) == {10}
    listed = server.api.get(url(job, "snapshots")).json()["items"]
    assert [(item["step"], item["pinned"]) for item in listed] == [(20, False), (10, True)]
    assert server.api.delete(url(job, "snapshots/10/pin")).status_code == 204
    assert read_pins(server.run_dir(job).pins) == set()


def test_a_snapshot_that_does_not_exist_cannot_be_pinned(server: ApiServer, job: dict[str, Any], take: Take) -> None:
    take(10)
    for step, status in ((30, 404), (-1, 422), (10**12, 422)):
        assert server.api.put(url(job, f"snapshots/{step}/pin")).status_code == status
    assert read_pins(server.run_dir(job).pins) == set()


def test_a_job_goes_back_to_a_chosen_snapshot_once(server: ApiServer, job: dict[str, Any], take: Take) -> None:
    take(10)
    take(20)
    fail(server, job)
    answer = server.api.post(url(job, "resume"), json={"snapshot": 10})
    assert answer.status_code == 202, answer.text
    assert (answer.json()["state"], answer.json()["snapshot_step"]) == ("queued", 10)
    assert row_of(server, job).rewind == {"run": 2, "step": 10}
    server.move(job, JobState.CANCELLED)
    assert server.api.post(url(job, "resume")).status_code == 202
    assert row_of(server, job).rewind == {}, "a plain resume forgets the choice"


def test_a_held_job_can_go_back_too_and_keeps_its_choice(server: ApiServer, job: dict[str, Any], take: Take) -> None:
    take(10)
    assert server.api.post(url(job, "resume"), json={"snapshot": 10}).status_code == 409  # queued, not held
    server.api.post(url(job, "drain"))
    answer = server.api.post(url(job, "resume"), json={"snapshot": 10}).json()
    assert (answer["intent"], answer["snapshot_step"]) == ("run", 10)


def test_no_job_goes_back_where_something_would_be_lost(server: ApiServer, job: dict[str, Any], take: Take) -> None:
    take(5)
    take(10)
    (take(20) / "model.pt").unlink()
    server.api.put(url(job, "snapshots/10/pin"))
    fail(server, job)
    for body, status, slug in (
        ({"snapshot": 30}, 404, "unknown-snapshot"),
        ({"snapshot": 20}, 409, "damaged-snapshot"),
        ({"snapshot": 5}, 409, "pinned-snapshot"),
        ({"snapshot": -1}, 422, "invalid-request"),
        ({"snapshot": "10"}, 422, "invalid-request"),
        ({"step": 10}, 422, "invalid-request"),
    ):
        answer = server.api.post(url(job, "resume"), json=body)
        assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{slug}")
        assert row_of(server, job).state is JobState.FAILED


@pytest.fixture
def own(server: ApiServer, job: dict[str, Any]) -> Path:
    """A checkpoint that the job's script has written."""
    run_dir = server.run_dir(job)
    path = run_dir.code / "epoch_1.pt"
    path.write_bytes(b"own weights")
    found = Checkpoint(str(path), "torch", 11, path.stat().st_mtime_ns / 1e9, 1)
    torn = replace(found, path=str(run_dir.code / "torn.pt"), complete=False)
    away = replace(found, path="/elsewhere/out.pt")
    write_json(run_dir.observed, Observations(1, ended=True, checkpoints=[found, torn, away]).to_json())
    return path


def test_a_job_goes_back_to_a_checkpoint_of_its_script(server: ApiServer, job: dict[str, Any], own: Path) -> None:
    assert server.api.post(url(job, "resume"), json={"checkpoint": "epoch_1.pt"}).status_code == 409  # not held
    fail(server, job)
    answer = server.api.post(url(job, "resume"), json={"checkpoint": "epoch_1.pt"})
    assert (answer.status_code, answer.json()["state"]) == (202, "queued"), answer.text
    assert row_of(server, job).rewind == {"run": 2, "path": str(own)}


def test_no_job_goes_back_to_what_is_not_a_checkpoint_as_it_was_listed(
    server: ApiServer, job: dict[str, Any], own: Path
) -> None:
    fail(server, job)
    for body, status, slug in (
        ({"checkpoint": "../../token"}, 404, "unknown-snapshot"),
        ({"checkpoint": "/etc/passwd"}, 404, "unknown-snapshot"),
        ({"checkpoint": ""}, 422, "invalid-request"),
        ({"checkpoint": "epoch_1.pt", "snapshot": 10}, 422, "invalid-request"),
        ({"checkpoint": "torn.pt"}, 409, "damaged-snapshot"),
        ({"checkpoint": "/elsewhere/out.pt"}, 409, "files-changed"),
    ):
        answer = server.api.post(url(job, "resume"), json=body)
        assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{slug}"), answer.text
    answer = server.api.post(url(job, "resume"), json={"checkpoint": "epoch_0.pt"})
    assert "no checkpoint 'epoch_0.pt' among the latest 100" in answer.json()["detail"]
    own.write_bytes(b"other weights")
    answer = server.api.post(url(job, "resume"), json={"checkpoint": "epoch_1.pt"})
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/files-changed")
    assert row_of(server, job).state is JobState.FAILED


def test_a_checkpoint_of_the_script_comes_as_an_archive(server: ApiServer, job: dict[str, Any], own: Path) -> None:
    answer = server.api.get(url(job, "checkpoint.zip"), params={"path": "epoch_1.pt"})
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert [(name, archive.read(name)) for name in archive.namelist()] == [("epoch_1.pt", b"own weights")]
    assert server.api.get(url(job, "checkpoint.zip"), params={"path": "/elsewhere/out.pt"}).status_code == 404
    assert server.api.get(url(job, "checkpoint.zip"), params={"path": "../spec.json"}).status_code == 404
    own.unlink()
    own.symlink_to(server.run_dir(job).spec)
    assert server.api.get(url(job, "checkpoint.zip"), params={"path": "epoch_1.pt"}).status_code == 409


def test_a_snapshot_comes_as_an_archive(server: ApiServer, job: dict[str, Any], take: Take) -> None:
    take(10)
    answer = server.api.get(url(job, "snapshots/10/files.zip"))
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == [f"000000000010/{name}" for name in ("model.pt", "rank-0.pt", "manifest.json")]
        assert archive.read("000000000010/model.pt") == b"weights"
    assert server.api.get(url(job, "snapshots/11/files.zip")).status_code == 404


def test_the_configuration_shows_code_and_environment(server: ApiServer, job: dict[str, Any]) -> None:
    def configuration() -> dict[str, Any]:
        return server.api.get(url(job, "configuration")).json()

    code = configuration()["code"]
    assert code["digest"].startswith("sha256:")
    assert (code["files"], code["bytes"]) == (1, 12)
    assert configuration()["environment"] is None
    server.run_dir(job).surroundings.write_text('{"python": "3.11.2", "packages": {"torch": "2.15"}}')
    assert configuration()["environment"]["packages"] == {"torch": "2.15"}
    server.run_dir(job).surroundings.write_text("nonsense")
    assert configuration()["environment"] is None


def test_the_code_of_two_jobs_is_compared(server: ApiServer, job: dict[str, Any], code: Path) -> None:
    (code / "more.py").write_text("")
    other = server.submit(code)
    answer = server.api.get(url(job, f"diff/{other['id']}"))
    assert answer.json()["code"] == [{"path": "more.py", "change": "added", "diff": None}]
    assert server.api.get(url(job, "diff/nosuchjob0")).status_code == 404


def test_thousands_of_metrics_are_named_and_fetched_by_name(server: ApiServer, job: dict[str, Any]) -> None:
    metrics = server.run_dir(job).attempt(1).rank(0).metrics
    metrics.parent.mkdir(parents=True)
    values = {f"layer{number}/norm": float(number) for number in range(3000)}
    lines = [{"step": step, "epoch": 0, "at": 1.0, "values": values} for step in (1, 2)]
    lines.append({"step": 3, "epoch": 0, "at": 1.0, "values": {"layer7/norm": float("inf")}})
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    named = server.api.get(url(job, "metrics/names")).json()["items"]
    assert len(named) == 3000
    assert named[7] == {"name": "layer7/norm", "step": 3, "epoch": 0, "value": None, "goal": None, "printed": None}
    query = {"name": ["layer2999/norm", "layer7/norm"]}
    series = server.api.get(url(job, "metrics"), params=query).json()["items"]
    assert sorted(item["name"] for item in series) == ["layer2999/norm", "layer7/norm"]
