"""Every list of the contract is told in pieces to who asks for them, and whole to who does not."""

import json
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.states import JobState
from rekindle_service.store.projection import RowChanges
from rekindle_service.store.tables import Attempt
from snapshot_files import write_snapshot

OF_JOB = ("attempts", "ranks", "metrics", "metrics/names", "snapshots", "events", "logs/search?q=a")
OTHERS = ("devices", "recipes", "experiments/builtin")


@pytest.fixture
def job(server: ApiServer, code: Path) -> dict[str, Any]:
    """Two attempts of two ranks, two metrics in each, and two snapshots."""
    job = server.submit(code, ranks=2)
    run_dir = server.run_dir(job)
    journal = Journal(run_dir.journal)
    server.move(job, JobState.STARTING, JobState.RUNNING, attempt=2)
    row = server.state.store.job(job["id"])
    assert row is not None
    attempts = {number: Attempt(job_id=row.id, number=number, run=1, started_at=1.0) for number in (1, 2)}
    assert server.state.store.apply_journal(row, RowChanges(1, attempts=attempts))
    for number in attempts:
        devices = ["cpu:0", "cpu:1"]
        journal.write(RecordType.ATTEMPT_STARTED, attempt=number, run=1, world_size=2, devices=devices, warm=True)
        metrics = run_dir.attempt(number).rank(0).metrics
        metrics.parent.mkdir(parents=True)
        lines = ({"step": step, "epoch": 0, "at": 1.0, "values": {"loss": 1.0, "acc": 0.5}} for step in range(20))
        for stream in ("stdout", "stderr"):
            run_dir.attempt(number).rank(0).log(stream).write_text("a\n")
        metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for step in (0, 10):
        write_snapshot(run_dir.snapshots, step)
    return job


def items(server: ApiServer, path: str) -> list[Any]:
    listed = server.api.get(path).json()
    assert listed["next"] is None
    return listed["items"]


def steady(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what differs from one moment to the next."""
    return [{name: value for name, value in item.items() if name != "heartbeat_age"} for item in told]


def test_a_list_in_pieces_of_one_is_the_whole_list(server: ApiServer, job: dict[str, Any]) -> None:
    for path in (*(f"/api/v1/jobs/{job['id']}/{name}" for name in OF_JOB), *(f"/api/v1/{name}" for name in OTHERS)):
        whole, told, more = items(server, path), [], ""
        assert len(whole) >= 2, path
        while more is not None:
            piece = server.api.get(f"{path}{'&' if '?' in path else '?'}limit=1{more}").json()
            assert len(piece["items"]) == 1, path
            told += piece["items"]
            more = None if piece["next"] is None else f"&cursor={piece['next']}"
        assert steady(told) == steady(whole), path


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": "x"}, {"cursor": "x"}, {"cursor": 10**30}])
def test_a_piece_that_there_cannot_be_is_refused(server: ApiServer, job: dict[str, Any], query: dict[str, Any]) -> None:
    answer = server.api.get(f"/api/v1/jobs/{job['id']}/attempts", params=query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] in query


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_a_series_has_no_more_points_than_asked_for_and_ends_with_its_last(
    server: ApiServer, job: dict[str, Any], most: int
) -> None:
    for series in items(server, f"/api/v1/jobs/{job['id']}/metrics?max_points={most}"):
        assert len(series["points"]) <= most
        assert series["points"][-1][0] == 19
