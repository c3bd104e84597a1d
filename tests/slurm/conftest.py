"""One cluster for all tests of a process; each test finds it without jobs and with all its nodes."""

from collections.abc import Iterator

import pytest

from slurm.cluster import Cluster, why_no_cluster


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
