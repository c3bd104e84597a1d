"""Every list of the contract comes in pages where they are requested, and whole where they are not."""

import json
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from job_records import record_attempt
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.states import JobState
from rekindle_service.store.projection import RowChanges
from shared_server import one_server  # noqa: F401 the fixture server
from snapshot_files import write_snapshot

OF_JOB = ("attempts", "ranks", "metrics", "metrics/names", "snapshots", "events", "logs/search?q=a")
OTHERS = ("devices", "recipes", "experiments/builtin")


@pytest.fixture
def job(server: ApiServer, code: Path) -> dict[str, Any]:
    """Two attempts of two ranks, two metrics in each, and two snapshots."""
    job = server.submit(code, ranks=2)
    run_dir = server.run_dir(job)
    server.move(job, JobState.STARTING, JobState.RUNNING, attempt=2)
    row = server.state.store.job(job["id"])
    assert row is not None
    attempts = {number: AttemptInfo(number, run=1, started_at=1.0) for number in (1, 2)}
    assert server.state.store.apply_journal(row, RowChanges(1, attempts=attempts))
    for number in attempts:
        rank = record_attempt(run_dir, number, world_size=2).rank(0)
        lines = ({"step": step, "epoch": 0, "at": 1.0, "values": {"loss": 1.0, "acc": 0.5}} for step in range(20))
        for stream in ("stdout", "stderr"):
            rank.log(stream).write_text("a\n")
        rank.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for step in (0, 10):
        write_snapshot(run_dir.snapshots, step)
    return job


def items(server: ApiServer, path: str) -> list[Any]:
    listed = server.api.get(path).json()
    assert listed["next"] is None
    return listed["items"]


def steady(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items without what differs from one moment to the next."""
    return [{name: value for name, value in item.items() if name != "heartbeat_age"} for item in listed]


def test_a_list_in_pages_of_one_is_the_whole_list(server: ApiServer, job: dict[str, Any]) -> None:
    for path in (*(f"/api/v1/jobs/{job['id']}/{name}" for name in OF_JOB), *(f"/api/v1/{name}" for name in OTHERS)):
        whole, pieces, more = items(server, path), [], ""
        assert len(whole) >= 2, path
        while more is not None:
            piece = server.api.get(f"{path}{'&' if '?' in path else '?'}limit=1{more}").json()
            assert len(piece["items"]) == 1, path
            pieces += piece["items"]
            more = None if piece["next"] is None else f"&cursor={piece['next']}"
        assert steady(pieces) == steady(whole), path


def test_a_page_that_cannot_exist_is_rejected(server: ApiServer, job: dict[str, Any]) -> None:
    for query in ({"limit": 0}, {"limit": "x"}, {"cursor": "x"}, {"cursor": 10**30}):
        answer = server.api.get(f"/api/v1/jobs/{job['id']}/attempts", params=query)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"] in query


def test_a_series_has_at_most_the_requested_points_and_its_last(server: ApiServer, job: dict[str, Any]) -> None:
    for most in (1, 2, 3, 5):
        for series in items(server, f"/api/v1/jobs/{job['id']}/metrics?max_points={most}"):
            assert len(series["points"]) <= most
            assert series["points"][-1][0] == 19
