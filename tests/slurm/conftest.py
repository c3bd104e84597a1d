"""One cluster for all tests of a process; each test finds it without jobs and with all its nodes."""

from collections.abc import Iterator

import pytest

from slurm.cluster import Cluster, why_no_cluster


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    why = why_no_cluster()
    if why is not None:
        pytest.skip(f"no Slurm cluster can be started here: {why}")
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """Three nodes n1 to n3 with four CPUs each."""
    shared_cluster.reset()
    yield shared_cluster
    shared_cluster.reset()
