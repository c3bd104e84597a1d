"""What ranks use and what a job's time went into, from files as keeper and ranks leave them."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from job_records import record_attempt, record_keeper, record_status
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.attempt_samples import GpuUsage, RankUsage, UsageSample
from rekindle.contract.states import JobState
from rekindle_service.store.projection import RowChanges
from shared_server import one_server  # noqa: F401 the fixture server

_GPU = GpuUsage(50, 1 << 30, 2 << 30, 60, 300.0, index=1)


@pytest.fixture
def job(server: ApiServer, code: Path) -> dict[str, Any]:
    """Two ranks, both of them this very process, as far as the server can see."""
    job = server.submit(code, ranks=2)
    run_dir = server.run_dir(job)
    record_keeper(run_dir)
    attempt = record_attempt(run_dir, world_size=2, devices=["cuda:4", "cuda:5"])
    for rank in range(2):
        record_status(attempt.rank(rank), rank, device=f"cuda:{rank}", saving_seconds=2.0)
    server.move(job, JobState.STARTING, JobState.RUNNING, attempt=1)
    server.read_journal(job)
    return job


def sample(at: float, percent: float | None) -> dict[str, Any]:
    ranks = [RankUsage(rank, percent, 1000 + rank, 10, 20) for rank in range(2)]
    return UsageSample(at, ranks, [_GPU]).to_json()


def write(server: ApiServer, job: dict[str, Any], *samples: dict[str, Any]) -> None:
    path = server.run_dir(job).attempt(1).usage
    path.write_text("".join(json.dumps(each) + "\n" for each in samples))


def usage_of_ranks(server: ApiServer, job: dict[str, Any]) -> list[Any]:
    return [row["usage"] for row in server.api.get(f"/api/v1/jobs/{job['id']}/ranks").json()["items"]]


def test_a_living_rank_shows_what_it_uses_now(server: ApiServer, job: dict[str, Any]) -> None:
    assert usage_of_ranks(server, job) == [None, None]
    write(server, job, sample(time.time() - 5, None), sample(time.time(), 87.5))
    first, second = usage_of_ranks(server, job)
    assert (first["cpu_percent"], first["rss_bytes"], first["devices"]) == (87.5, 1000, [])
    assert [(gpu["index"], gpu["utilization_percent"]) for gpu in second["devices"]] == [(1, 50)]
    write(server, job, sample(time.time() - 3600, 87.5))
    assert usage_of_ranks(server, job) == [None, None], "the last sample is an hour old"
    write(server, job, sample(time.time(), 87.5))
    server.move(job, JobState.FAILED)
    assert usage_of_ranks(server, job) == [None, None]


def test_the_series_comes_by_rank_and_thinned_with_the_last_sample_kept(server: ApiServer, job: dict[str, Any]) -> None:
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


def test_a_missing_rank_or_attempt_is_a_problem_with_its_name(server: ApiServer, job: dict[str, Any]) -> None:
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
    assert usage_of_ranks(server, job) == [None, None]


def test_the_intervals_of_a_job_add_up_to_its_goodput(server: ApiServer, job: dict[str, Any]) -> None:
    row = server.state.store.job(job["id"])
    assert row is not None
    began = row.created_at
    ended = {"run": 1, "started_at": began + 2, "ranks_running_at": began + 3, "ended_at": began + 13, "last_step": 100}
    running = {"run": 1, "started_at": time.time() - 11, "ranks_running_at": time.time() - 10, "resumed_from_step": 50}
    attempts = {
        1: AttemptInfo(number=2, saving_seconds=None, **running),
        0: AttemptInfo(number=1, saving_seconds=4.0, **ended),
    }
    server.state.store.apply_journal(row, RowChanges(1, attempts=attempts))
    rank = server.run_dir(job).attempt(2).rank(0)
    rank.root.mkdir(parents=True)
    record_status(rank, 0, saving_seconds=2.0)
    breakdown = server.api.get(f"/api/v1/jobs/{job['id']}/time").json()
    intervals = breakdown["intervals"]
    first = [(interval["category"], interval["seconds"]) for interval in intervals if interval["attempt"] == 1]
    assert first == [("starting", 1.0), ("training", 3.0), ("saving", 4.0), ("replayed", 3.0)]
    second = {interval["category"]: interval["seconds"] for interval in intervals if interval["attempt"] == 2}
    assert second["saving"] == 2.0, "as the running rank reports"
    spent = breakdown["seconds"]
    assert set(spent) == {"queued", "waiting", "starting", "training", "saving", "replayed", "stalled"}
    assert breakdown["goodput"] == pytest.approx(spent["training"] / (sum(spent.values()) - spent["queued"]))
