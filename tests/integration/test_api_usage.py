"""What ranks use and what a job's time went into, from files as keeper and ranks leave them."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from rekindle.contract.files import write_json
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.run_dir.rank_records import RankState, RankStatus
from rekindle.contract.run_dir.usage import GpuUsage, RankUsage, UsageSample
from rekindle.contract.states import JobState
from rekindle_service.store.projection import RowChanges
from rekindle_service.store.tables import Attempt

_GPU = GpuUsage(1, 50, 1 << 30, 2 << 30, 60, 300.0)


@pytest.fixture
def job(server: ApiServer, code: Path) -> dict[str, Any]:
    """Two ranks, both of them this very process, as far as the server can see."""
    job = server.submit(code, ranks=2)
    run_dir = server.run_dir(job)
    identity = ProcessIdentity.own()
    keeper = {"pid": identity.pid, "start_time": identity.start_time, "boot_id": identity.boot_id}
    journal = Journal(run_dir.journal)
    journal.write(RecordType.KEEPER_STARTED, run=1, keeper=keeper)
    journal.write(RecordType.ATTEMPT_STARTED, attempt=1, run=1, world_size=2, devices=["cuda:4", "cuda:5"])
    run_dir.attempt(1).ranks.mkdir(parents=True)
    for rank in range(2):
        status = RankStatus(
            rank, rank, 2, "box", identity.pid, identity.start_time, f"cuda:{rank}", RankState.RUNNING, 1.0
        )
        run_dir.attempt(1).rank(rank).root.mkdir()
        write_json(run_dir.attempt(1).rank(rank).status, {**status.to_json(), "saving_seconds": 2.0})
    server.move(job, JobState.STARTING, JobState.RUNNING, attempt=1)
    return job


def sample(at: float, percent: float | None) -> dict[str, Any]:
    ranks = [RankUsage(rank, percent, 1000 + rank, 10, 20) for rank in range(2)]
    return UsageSample(at, ranks, [_GPU]).to_json()


def write(server: ApiServer, job: dict[str, Any], *samples: dict[str, Any]) -> None:
    path = server.run_dir(job).attempt(1).usage
    path.write_text("".join(json.dumps(each) + "\n" for each in samples))


def test_a_living_rank_shows_what_it_uses_now(server: ApiServer, job: dict[str, Any]) -> None:
    url = f"/api/v1/jobs/{job['id']}/ranks"
    assert [row["usage"] for row in server.api.get(url).json()["items"]] == [None, None]
    write(server, job, sample(time.time() - 5, None), sample(time.time(), 87.5))
    first, second = (row["usage"] for row in server.api.get(url).json()["items"])
    assert (first["cpu_percent"], first["rss_bytes"], first["devices"]) == (87.5, 1000, [])
    assert [(gpu["index"], gpu["utilization_percent"]) for gpu in second["devices"]] == [(1, 50)]
    write(server, job, sample(time.time() - 3600, 87.5))
    assert [row["usage"] for row in server.api.get(url).json()["items"]] == [None, None], (
        "nobody has looked for an hour"
    )
    write(server, job, sample(time.time(), 87.5))
    server.move(job, JobState.FAILED)
    assert [row["usage"] for row in server.api.get(url).json()["items"]] == [None, None]


def test_the_series_is_told_by_rank_and_thinned_with_the_last_look_kept(server: ApiServer, job: dict[str, Any]) -> None:
    url = f"/api/v1/jobs/{job['id']}/usage"
    assert server.api.get(url).json() == {"items": [], "next": None}
    write(server, job, *(sample(float(at), float(at)) for at in range(1000)))
    series = server.api.get(url, params={"max_points": 10}).json()["items"]
    assert [(each["attempt"], each["rank"]) for each in series] == [(1, 0), (1, 1)]
    assert all(len(each["points"]) <= 10 for each in series)
    last = series[1]["points"][-1]
    assert (last["at"], last["cpu_percent"], last["rss_bytes"]) == ("1970-01-01T00:16:39Z", 999.0, 1001)
    assert (last["read_bytes"], last["written_bytes"], last["devices"][0]["power_watts"]) == (10, 20, 300.0)
    (only,) = server.api.get(url, params={"rank": 1, "attempt": 1}).json()["items"]
    assert only["rank"] == 1
    assert len(only["points"]) == 250


def test_a_rank_or_attempt_that_is_not_there_is_said_to_be_missing(server: ApiServer, job: dict[str, Any]) -> None:
    url = f"/api/v1/jobs/{job['id']}/usage"
    assert server.api.get(url, params={"rank": 2}).json()["type"] == "/problems/unknown-rank"
    assert server.api.get(url, params={"attempt": 9}).json()["type"] == "/problems/unknown-attempt"
    assert server.api.get(url, params={"max_points": 0}).status_code == 422
    assert server.api.get(url, params={"rank": 1}).json()["items"] == [{"attempt": 1, "rank": 1, "points": []}]


def test_a_script_that_writes_over_the_figures_gets_no_other_file_shown(server: ApiServer, job: dict[str, Any]) -> None:
    path = server.run_dir(job).attempt(1).usage
    path.symlink_to(server.state.home.token)
    assert server.api.get(f"/api/v1/jobs/{job['id']}/usage").json()["items"] == []
    path.unlink()
    os.mkfifo(path)
    assert [row["usage"] for row in server.api.get(f"/api/v1/jobs/{job['id']}/ranks").json()["items"]] == [None, None]


def test_the_intervals_of_a_job_add_up_to_its_goodput(server: ApiServer, job: dict[str, Any]) -> None:
    row = server.state.store.job(job["id"])
    assert row is not None
    began = row.created_at
    ended = {"run": 1, "started_at": began + 2, "ranks_running_at": began + 3, "ended_at": began + 13, "last_step": 100}
    running = {"run": 1, "started_at": time.time() - 11, "ranks_running_at": time.time() - 10, "resumed_from_step": 50}
    attempts = {
        1: Attempt(job_id=row.id, number=2, saving_seconds=None, **running),
        0: Attempt(job_id=row.id, number=1, saving_seconds=4.0, **ended),
    }
    server.state.store.apply_journal(row, RowChanges(1, attempts=attempts))
    shown = server.run_dir(job).attempt(2).rank(0)
    shown.root.mkdir(parents=True)
    (shown.status).write_text((server.run_dir(job).attempt(1).rank(0).status).read_text())
    told = server.api.get(f"/api/v1/jobs/{job['id']}/time").json()
    first = [(interval["category"], interval["seconds"]) for interval in told["intervals"] if interval["attempt"] == 1]
    assert first == [("starting", 1.0), ("training", 3.0), ("saving", 4.0), ("replayed", 3.0)]
    second = {interval["category"]: interval["seconds"] for interval in told["intervals"] if interval["attempt"] == 2}
    assert second["saving"] == 2.0, "as the running rank says itself"
    spent = told["seconds"]
    assert set(spent) == {"queued", "waiting", "starting", "training", "saving", "replayed"}
    assert told["goodput"] == pytest.approx(spent["training"] / (sum(spent.values()) - spent["queued"]))


def test_the_time_of_a_job_in_the_queue_is_all_queued(server: ApiServer, code: Path) -> None:
    job = server.submit(code)
    told = server.api.get(f"/api/v1/jobs/{job['id']}/time").json()
    assert told["goodput"] is None
    assert {interval["category"] for interval in told["intervals"]} == {"queued"}
