"""A job on two nodes ends as it does on one machine, whatever happens to a rank, a node or a keeper."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.cluster_run import ClusterRun

Begin = Callable[..., ClusterRun]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Begin]:
    """Makes runs on nodes of this machine; nothing of them is left running."""
    runs: list[ClusterRun] = []

    def make(script: str, *args: str, **spec: Any) -> ClusterRun:
        runs.append(ClusterRun(tmp_path / f"run{len(runs) + 1}", script, *args, **spec))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


def test_two_nodes_train_as_one_machine_does(cluster: Begin, undisturbed: str) -> None:
    run = cluster("ddp.py")
    run.start()
    assert run.finish() == "succeeded", run.story()
    assert run.weights() == undisturbed
