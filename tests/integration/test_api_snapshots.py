"""What can be done with the snapshots of a job, and what it runs with."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from rekindle.contract.run_dir.snapshots import read_pins
from rekindle.contract.states import JobState
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


def fail(server: ApiServer, job: dict[str, Any]) -> None:
    server.move(job, JobState.STARTING, run=1)
    server.move(job, JobState.FAILED)


def test_a_pin_is_kept_until_it_is_taken_off(server: ApiServer, job: dict[str, Any], take: Take) -> None:
    take(10)
    take(20)
    assert server.api.put(url(job, "snapshots/10/pin")).status_code == 204
    assert read_pins(server.run_dir(job).pins) == {10}
    listed = server.api.get(url(job, "snapshots")).json()["items"]
    assert [(item["step"], item["pinned"]) for item in listed] == [(20, False), (10, True)]
    assert server.api.delete(url(job, "snapshots/10/pin")).status_code == 204
    assert read_pins(server.run_dir(job).pins) == set()


@pytest.mark.parametrize(("step", "status"), [(30, 404), (-1, 422), (10**12, 422)])
def test_what_is_not_there_cannot_be_pinned(
    server: ApiServer, job: dict[str, Any], take: Take, step: int, status: int
) -> None:
    take(10)
    assert server.api.put(url(job, f"snapshots/{step}/pin")).status_code == status
    assert read_pins(server.run_dir(job).pins) == set()


def test_a_job_goes_back_to_a_chosen_snapshot(server: ApiServer, job: dict[str, Any], take: Take) -> None:
    take(10)
    take(20)
    fail(server, job)
    answer = server.api.post(url(job, "resume"), json={"snapshot": 10})
    assert answer.status_code == 202, answer.text
    assert (answer.json()["state"], answer.json()["snapshot_step"]) == ("queued", 10)
    row = server.state.store.job(job["id"])
    assert row is not None
    assert row.rewind == {"run": 2, "step": 10}


def test_a_plain_resume_forgets_an_earlier_choice(server: ApiServer, job: dict[str, Any], take: Take) -> None:
    take(10)
    fail(server, job)
    server.api.post(url(job, "resume"), json={"snapshot": 10})
    server.move(job, JobState.CANCELLED)
    assert server.api.post(url(job, "resume")).status_code == 202
    row = server.state.store.job(job["id"])
    assert row is not None
    assert row.rewind == {}


def test_a_held_job_can_go_back_too_and_keeps_its_choice(server: ApiServer, job: dict[str, Any], take: Take) -> None:
    take(10)
    assert server.api.post(url(job, "resume"), json={"snapshot": 10}).status_code == 409  # queued, not held
    server.api.post(url(job, "drain"))
    answer = server.api.post(url(job, "resume"), json={"snapshot": 10}).json()
    assert (answer["intent"], answer["snapshot_step"]) == ("run", 10)


@pytest.mark.parametrize(
    ("body", "status", "slug"),
    [
        ({"snapshot": 30}, 404, "unknown-snapshot"),
        ({"snapshot": 20}, 409, "damaged-snapshot"),
        ({"snapshot": 5}, 409, "pinned-snapshot"),
        ({"snapshot": -1}, 422, "invalid-request"),
        ({"snapshot": "10"}, 422, "invalid-request"),
        ({"step": 10}, 422, "invalid-request"),
    ],
)
def test_no_job_goes_back_where_something_would_be_lost(
    server: ApiServer, job: dict[str, Any], take: Take, body: dict[str, Any], status: int, slug: str
) -> None:
    take(5)
    take(10)
    (take(20) / "model.pt").unlink()
    server.api.put(url(job, "snapshots/10/pin"))
    fail(server, job)
    answer = server.api.post(url(job, "resume"), json=body)
    assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{slug}")
    row = server.state.store.job(job["id"])
    assert row is not None
    assert row.state is JobState.FAILED


def test_a_snapshot_comes_as_an_archive(server: ApiServer, job: dict[str, Any], take: Take) -> None:
    take(10)
    answer = server.api.get(url(job, "snapshots/10/files.zip"))
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == [f"000000000010/{name}" for name in ("model.pt", "rank-0.pt", "manifest.json")]
        assert archive.read("000000000010/model.pt") == b"weights"
    assert server.api.get(url(job, "snapshots/11/files.zip")).status_code == 404


def test_the_configuration_shows_code_and_environment(server: ApiServer, job: dict[str, Any], code: Path) -> None:
    told = server.api.get(url(job, "configuration")).json()
    assert told["code"]["digest"].startswith("sha256:")
    assert (told["code"]["files"], told["code"]["bytes"]) == (1, 12)
    assert told["environment"] is None
    server.run_dir(job).surroundings.write_text('{"python": "3.11.2", "packages": {"torch": "2.15"}}')
    assert server.api.get(url(job, "configuration")).json()["environment"]["packages"] == {"torch": "2.15"}
    server.run_dir(job).surroundings.write_text("nonsense")
    assert server.api.get(url(job, "configuration")).json()["environment"] is None


def test_the_code_of_two_jobs_is_compared(server: ApiServer, job: dict[str, Any], code: Path) -> None:
    (code / "more.py").write_text("")
    other = server.submit(code)
    answer = server.api.get(url(other, "code/differences"), params={"other": job["id"]})
    assert answer.json()["items"] == [{"path": "more.py", "change": "added", "diff": None}]
    assert server.api.get(url(other, "code/differences"), params={"other": "nosuchjob0"}).status_code == 404


def test_thousands_of_metrics_are_named_and_fetched_by_name(server: ApiServer, job: dict[str, Any]) -> None:
    metrics = server.run_dir(job).attempt(1).rank(0).metrics
    metrics.parent.mkdir(parents=True)
    values = {f"layer{number}/norm": float(number) for number in range(3000)}
    lines = [{"step": step, "epoch": 0, "at": 1.0, "values": values} for step in (1, 2)]
    lines.append({"step": 3, "epoch": 0, "at": 1.0, "values": {"layer7/norm": float("inf")}})
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    named = server.api.get(url(job, "metrics/names")).json()["items"]
    assert len(named) == 3000
    assert named[7] == {"name": "layer7/norm", "step": 3, "value": None, "goal": None}
    query = {"name": ["layer2999/norm", "layer7/norm"]}
    series = server.api.get(url(job, "metrics"), params=query).json()["items"]
    assert sorted(item["name"] for item in series) == ["layer2999/norm", "layer7/norm"]
