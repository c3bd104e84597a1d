"""A job on two nodes ends as it does on one machine, whatever happens to a rank, a node or a keeper."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.cluster_run import ClusterRun
from rekindle.contract.run_dir.journal import RecordType

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


def test_a_killed_rank_restarts_the_attempt_warm_on_both_nodes(cluster: Begin, undisturbed: str) -> None:
    run = cluster("ddp.py", "1:12:kill", "0:17:raise")
    run.start()
    assert run.finish() == "succeeded", run.story()
    assert run.weights() == undisturbed
    assert [(one["class"], one["rank"]) for one in run.outcomes()] == [
        ("signal", 1),
        ("user_error", 0),
        ("success", None),
    ]
    assert [record.hosts for record in run.records(RecordType.ATTEMPT_STARTED)] == [["n1", "n2"]] * 3


def test_a_lost_node_is_replaced_and_nothing_of_the_training_is(cluster: Begin, undisturbed: str) -> None:
    run = cluster("ddp.py")
    run.start()
    run.reach_step(7)
    run.signal_node("n2")
    assert run.finish() == "succeeded", run.story()
    assert run.weights() == undisturbed
    assert run.classes() == ["host_lost", "success"]
    assert "Node n2 was lost" in run.outcomes()[0]["message"]


def test_an_elastic_job_goes_on_without_the_lost_node(cluster: Begin) -> None:
    run = cluster("ddp.py", min_nodes=1)
    run.start()
    run.reach_step(7)
    (run.run_dir.root / "broken").write_text("n1")
    run.signal_node("n1")
    assert run.finish() == "succeeded", run.story()
    assert run.classes() == ["host_lost", "success"]
    assert [record.hosts for record in run.records(RecordType.ATTEMPT_STARTED)] == [["n1", "n2"], ["n2"]]
    assert [record.world_size for record in run.records(RecordType.ATTEMPT_STARTED)] == [2, 1]


def test_a_node_that_is_cut_off_counts_as_lost_and_its_ranks_end_by_themselves(cluster: Begin, undisturbed: str) -> None:
    run = cluster("ddp.py", host_timeout=8.0)
    run.start()
    run.reach_step(7)
    keeper = run.node_keeper("n2")
    os.kill(keeper, signal.SIGSTOP)
    assert run.finish() == "succeeded", run.story()
    assert run.weights() == undisturbed
    assert run.classes()[0] == "host_lost"
    assert "nothing has been heard" in run.outcomes()[0]["message"]
