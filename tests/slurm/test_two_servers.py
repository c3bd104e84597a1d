"""Two servers, each with a home of its own whose path has spaces, on one cluster that has no accounting."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from e2e.serve_process import ServeProcess
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings
from slurm.cluster import Cluster
from slurm.cluster_job import ClusterJob

SPY = '#!/bin/sh\necho "$0 $*" >>{calls}\nexit 1\n'


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in which each call of a command of Slurm's accounting is written."""
    calls = tmp_path / "calls"
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("sacct", "sacctmgr", "sreport", "sshare"):
        (commands / name).write_text(SPY.format(calls=calls))
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    return calls


@contextmanager
def a_server(cluster: Cluster, home: Path) -> Iterator[tuple[ServeProcess, Client]]:
    home.mkdir(mode=0o700)
    with ExitStack() as stack:
        environment = {**cluster.environment, "REKINDLE_SLURM_POLL_SECONDS": "0.5"}
        server = stack.enter_context(ServeProcess(home, environment=environment))
        yield server, stack.enter_context(Client.from_home(Settings(home=home)))


def test_two_servers_on_one_cluster_each_see_and_end_only_their_own_jobs(
    cluster: Cluster, tmp_path: Path, calls: Path
) -> None:
    one_home, two_home = tmp_path / "home of one", tmp_path / "home of two"
    with a_server(cluster, one_home) as (server, one), a_server(cluster, two_home) as (_, two):
        for out in ("out1", "out2"):
            (tmp_path / out).mkdir()
        body = {"nodes": 1, "ranks": 1, "pace": 0.5}
        mine = ClusterJob(cluster, one, one_home, tmp_path / "out1", epochs=40, **body)
        other = ClusterJob(cluster, two, two_home, tmp_path / "out2", epochs=3, **body)
        mine.reach()
        other.reach()
        server.kill()
        server.start()
        assert [job["id"] for job in one.jobs()] == [mine.id]
        assert [job["id"] for job in two.jobs()] == [other.id]
        one.cancel(mine.id)
        assert mine.finish() == "cancelled", mine.all_logs()
        assert other.finish() == "succeeded", other.all_logs()
        assert other.classes() == ["success"]
        assert [len(job.slurm_jobs()) for job in (mine, other)] == [1, 1]
    assert not calls.exists(), calls.read_text()
