"""One cluster for all tests of a process; each test finds it without jobs and with all its nodes."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.serve_process import ServeProcess
from plain_torchrun import torchrun
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings
from slurm.cluster import Cluster, why_no_cluster
from slurm.cluster_job import SCRIPTS, ClusterJob, Trained, trained_steps

EPOCHS = 4
HOST_TIMEOUT = 15.0  # seconds
Submit = Callable[..., ClusterJob]


@pytest.fixture(scope="session", autouse=True)
def alone() -> None:
    """A host that comes or goes changes the machine's network, and Chromium then gives up the requests of a page."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("the network of this machine must not change beside other tests: pytest tests/slurm")


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    why = why_no_cluster()
    if why is not None:
        pytest.skip(f"no Slurm cluster can be started here: {why}")
    with Cluster(shared=[tmp_path_factory.getbasetemp()]) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """Three nodes n1 to n3 with four CPUs each; they share the tests' temporary directories, not /tmp."""
    shared_cluster.reset()
    yield shared_cluster
    shared_cluster.reset()


@dataclass(frozen=True)
class Undisturbed:
    """What two ranks of ``scripts/train.py`` come to on one machine, without rekindle's service or Slurm."""

    digests: list[dict[str, Any]]
    steps: Trained


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    out = tmp_path_factory.mktemp("undisturbed")
    ended = torchrun(2, [str(SCRIPTS / "train.py")], out, EPOCHS=str(EPOCHS), PACE="0")
    assert ended.code == 0, ended.output
    digests = [json.loads(path.read_text()) for path in sorted(out.glob("digest-*.json"))]
    return Undisturbed(digests, trained_steps(out))


@pytest.fixture
def host_timeout() -> float:
    """Seconds of silence after which a node counts as lost; a test may give another number."""
    return HOST_TIMEOUT


@pytest.fixture
def server(cluster: Cluster, home: Path, host_timeout: float) -> Iterator[ServeProcess]:
    """A server on a machine that is no node, which finds the cluster by its environment."""
    own = {"REKINDLE_HOST_TIMEOUT": str(host_timeout), "REKINDLE_SLURM_POLL_SECONDS": "0.5"}
    with ServeProcess(home, environment={**cluster.environment, **own}) as server:
        yield server


@pytest.fixture
def client(server: ServeProcess, home: Path) -> Iterator[Client]:
    with Client.from_home(Settings(home=home)) as client:
        yield client


@pytest.fixture
def submit(cluster: Cluster, client: Client, home: Path, tmp_path: Path) -> Submit:
    """Submits a job; see ``ClusterJob``."""

    def make(**body: Any) -> ClusterJob:
        out = tmp_path / f"out{len(list(tmp_path.glob('out*')))}"
        out.mkdir()
        return ClusterJob(cluster, client, home, out, **{"epochs": EPOCHS, **body})

    return make
