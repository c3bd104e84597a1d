"""Whatever is killed: the job ends succeeded exactly once, with the weights of a run that nothing happened to."""

import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.serve_process import ServeProcess
from e2e.served_job import ServedJob
from e2e.waiting import until
from rekindle.contract.run_dir.journal import RecordType
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings

_BODY = {
    "recipe": "ddp",
    "args": ["--epochs", "6", "--throttle", "0.1"],
    "ranks": 2,
    "device": "cpu",
    "snapshot": {"every_steps": 5},
}
Submit = Callable[[], ServedJob]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("survival") / "home"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[ServeProcess]:
    with ServeProcess(home) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: ServeProcess, home: Path) -> Iterator[Client]:
    with Client.from_home(Settings(home=home)) as client:
        yield client


@pytest.fixture(scope="module")
def undisturbed(client: Client, home: Path) -> str:
    """The weights that every run must end with."""
    job = ServedJob(client, home, _BODY)
    assert job.finish() == "succeeded"
    return job.weights()


@pytest.fixture
def submit(client: Client, home: Path, undisturbed: str) -> Iterator[Submit]:
    """Submits jobs; every one of them must end as if nothing had happened."""
    jobs: list[ServedJob] = []

    def make() -> ServedJob:
        jobs.append(ServedJob(client, home, _BODY))
        return jobs[-1]

    yield make
    for job in jobs:
        assert job.finish() == "succeeded"
        assert job.weights() == undisturbed
        assert [record.state for record in job.records(RecordType.JOB_ENDED)] == ["succeeded"]
        assert_logs_are_served(client, job)
        assert {path.name for path in job.run_dir.attempts.iterdir()} == set(map(str, range(1, job.attempt() + 1)))


def assert_logs_are_served(client: Client, job: ServedJob) -> None:
    for attempt in client.attempts(job.id):
        for rank in (0, 1):
            log = client.log(job.id, rank, "stdout", attempt["number"], offset=0)
            assert log.data == job.run_dir.attempt(attempt["number"]).rank(rank).log("stdout").read_bytes()


@pytest.mark.short
def test_a_killed_rank_agent_and_keeper_cost_less_than_a_snapshot_interval(submit: Submit) -> None:
    job = submit()
    for attempt, kill in enumerate([lambda: job.kill_rank(1), job.kill_agent, job.kill_keeper], start=1):
        job.reach(attempt=attempt, beyond=job.reach_snapshot())
        kill()
    assert job.finish() == "succeeded"
    attempts = job.records(RecordType.ATTEMPT_ENDED)
    assert [one.outcome.klass for one in attempts] == ["signal", "signal", "keeper_lost", "success"]
    resumed = [record.step for record in job.records(RecordType.RESUMED)]
    reached = [one.last_step for one in attempts[:3]]
    assert len(resumed) == 3
    assert all(0 <= last - first <= 10 for last, first in zip(reached, resumed, strict=True)), (reached, resumed)


def test_ranks_train_on_while_the_server_is_dead_and_a_killed_rank_comes_back(
    submit: Submit, server: ServeProcess, client: Client
) -> None:
    job = submit()
    job.reach(beyond=job.reach_snapshot())
    pids = job.pids()
    server.kill()
    job.reach(beyond=job.step() + 3)
    assert job.pids() == pids
    job.kill_rank(0)
    job.reach(attempt=2, beyond=0)
    pids = job.pids()
    server.start()
    shown = until(lambda: client.attempts(job.id)[1:], "the new server shows the attempt made while none ran", 2)
    assert shown[0]["resumed_from_step"] > 0
    assert job.state() in ("running", "succeeded")
    assert job.pids() == pids


@pytest.mark.soak
def test_server_and_keeper_killed_together_lose_nothing(submit: Submit, server: ServeProcess, client: Client) -> None:
    job = submit()
    job.reach(beyond=job.reach_snapshot())
    server.kill()
    job.kill_keeper()
    until(lambda: not job.processes(), "the ranks have gone with their keeper", 5)
    server.start()
    job.reach(attempt=2, beyond=0)
    assert client.attempts(job.id)[0]["outcome"]["class"] == "keeper_lost"


@pytest.mark.soak
def test_a_server_killed_again_and_again_never_disturbs_the_ranks(submit: Submit, server: ServeProcess) -> None:
    job = submit()
    job.reach(beyond=job.reach_snapshot())
    pids = job.pids()
    for _ in range(3):
        server.kill()
        server.start()
    assert job.attempt() == 1
    assert job.pids() == pids


@pytest.mark.soak
def test_the_event_stream_continues_where_a_killed_server_left_it(submit: Submit, server: ServeProcess) -> None:
    job = submit()
    job.reach(beyond=1)
    before = greeted_version(server, 0)
    server.kill()
    server.start()
    assert greeted_version(server, before) >= before


def greeted_version(server: ServeProcess, since: int) -> int:
    """The version that the stream greets with."""
    request = urllib.request.Request(  # noqa: S310  # our own server
        f"{server.url}/api/v1/events?last_event_id={since}", headers={"Authorization": f"Bearer {server.token}"}
    )
    with urllib.request.urlopen(request, timeout=20) as stream:  # noqa: S310  # our own server
        for line in stream:
            if line.startswith(b"data:"):
                return int(json.loads(line[5:])["version"])
    raise AssertionError("the stream ended without a greeting")


@pytest.mark.soak
def test_no_core_file_and_no_directory_of_torchrun_is_left_in_the_users_code(submit: Submit) -> None:
    job = submit()
    job.reach(beyond=job.reach_snapshot())
    os.kill(job.pids()[1], 11)
    assert job.finish() == "succeeded"
    assert list(job.run_dir.code.iterdir()) == []
