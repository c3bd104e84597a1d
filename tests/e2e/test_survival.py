"""Whatever is killed: the job ends succeeded exactly once, with the weights of a run that nothing happened to."""

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
