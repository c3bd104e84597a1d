"""A job on two nodes ends as it does on one machine, whatever happens to a rank, a node or a keeper."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from e2e.waiting import until
from faults.cluster_run import ClusterRun, alive
from network_hosts import needs_hosts, network_hosts
from rekindle.contract.processes import parent_of
from rekindle.contract.run_dir.control_messages import ControlMessage, Fault, MessageType, post_request
from rekindle.contract.run_dir.coordinator_records import CoordinatorBeat
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.safe_open import regular_size
from rekindle.contract.states import JobIntent

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


def test_a_killed_rank_restarts_the_attempt_warm_on_both_nodes(cluster: Begin, undisturbed: str) -> None:
    run = cluster("ddp.py", "1:12:kill", "0:17:raise")
    run.start()
    assert run.finish() == "succeeded", run.all_logs()
    assert run.weights() == undisturbed
    assert [(one["class"], one["rank"]) for one in run.outcomes()] == [
        ("signal", 1),
        ("user_error", 0),
        ("success", None),
    ]
    assert [record.hosts for record in run.records(RecordType.ATTEMPT_STARTED)] == [["n1", "n2"]] * 3


def test_a_rank_that_the_others_wait_for_is_marked_once(cluster: Begin) -> None:
    run = cluster("straggler.py", ranks_per_node=2, hang_timeout=30.0)
    run.start()
    run.reach_record(RecordType.STRAGGLER)
    (run.run_dir.snapshots / "end").touch()
    assert run.finish() == "succeeded", run.all_logs()
    assert [mark.rank for mark in run.records(RecordType.STRAGGLER)] == [1]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("number", "host_timeout", "message"),
    [(signal.SIGKILL, 20.0, "Node n2 was lost"), (signal.SIGSTOP, 8.0, "nothing has been heard")],
)
def test_a_lost_or_silent_node_is_replaced_and_nothing_of_the_training_is(
    cluster: Begin, undisturbed: str, number: signal.Signals, host_timeout: float, message: str
) -> None:
    run = cluster("ddp.py", host_timeout=host_timeout)
    run.start()
    run.reach_step(7)
    run.signal_node("n2", number)
    assert run.finish() == "succeeded", run.all_logs()
    assert run.weights() == undisturbed
    assert run.classes() == ["host_lost", "success"]
    assert message in run.outcomes()[0]["message"]


@pytest.mark.soak
def test_an_elastic_job_continues_without_the_lost_node(cluster: Begin) -> None:
    run = cluster("ddp.py", min_nodes=1)
    run.start()
    run.reach_step(7)
    (run.run_dir.root / "broken").write_text("n1")
    run.signal_node("n1")
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["host_lost", "success"]
    assert [record.hosts for record in run.records(RecordType.ATTEMPT_STARTED)] == [["n1", "n2"], ["n2"]]
    assert [record.world_size for record in run.records(RecordType.ATTEMPT_STARTED)] == [2, 1]


def test_a_hang_on_any_node_is_found_and_its_rank_and_line_are_named(cluster: Begin) -> None:
    run = cluster("corpus.py", "sleep", "skip_collective", hang_timeout=2.0)
    run.start()
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["hang"] * 2 + ["success"]
    assert [one["rank"] for one in run.outcomes()] == [1, 1, None]
    assert set(run.outcomes()[0]["evidence"]["stacks"]) == {"0", "1"}
    stalled = next(each for each in run.records(RecordType.STALLED) if each.sentence is not None)
    assert (stalled.attempt, stalled.rank) == (1, 1)
    assert stalled.sentence in run.outcomes()[0]["message"], "shown before with the same sentence"


@pytest.mark.soak
def test_a_drained_job_saves_on_all_nodes_and_continues_with_the_next_step(cluster: Begin) -> None:
    run = cluster("loaders.py")
    run.start()
    run.reach_step(2)
    run.want(JobIntent.DRAIN)
    assert run.finish() == "queued", run.all_logs()
    assert run.classes() == ["preempted"]
    assert {run.steps(0)[0][-1], run.steps(1)[0][-1]} == {common_step(run)}
    run.want(JobIntent.RUN, run=2)
    run.start(restart=1)
    run.reach_step(common_step(run) + 1, attempt=2)
    run.want(JobIntent.CANCEL, run=2)
    assert run.leave() == 0
    assert run.steps(0)[1][0] == run.steps(0)[0][-1] + 1
    assert run.classes() == ["preempted", "cancelled"]


@pytest.mark.soak
def test_the_end_of_the_allocation_drains_the_attempt_and_leaves_the_rest_to_the_next_launch(cluster: Begin) -> None:
    run = cluster("loaders.py")
    run.start()
    run.reach_step(2)
    run.keeper.send_signal(signal.SIGTERM)
    assert run.leave() == 0
    assert run.classes() == ["preempted"]
    assert not run.records(RecordType.JOB_ENDED)


@pytest.mark.soak
def test_the_next_launch_continues_where_a_leader_was_killed(cluster: Begin, undisturbed: str) -> None:
    run = cluster("ddp.py")
    run.start()
    run.reach_step(12)
    run.kill_keeper()
    until(lambda: not run.processes(), "the nodes have ended with their leader")
    run.launch = 2
    run.want(JobIntent.RUN)
    run.start()
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["keeper_lost", "success"]
    assert run.weights() == undisturbed
    assert run.steps(0)[1][0] > 10


def test_a_superseded_leader_ends_its_ranks_and_writes_nothing_more(cluster: Begin) -> None:
    run = cluster("loaders.py")
    run.start()
    run.reach_step(1)
    before = run.run_dir.journal.read_bytes()
    fence = run.run_dir.fence.read_bytes()
    run.launch = 2
    run.want(JobIntent.RUN)
    assert run.leave() == 3
    assert "launch 2 has taken over" in run.run_dir.keeper_log.read_text()
    assert run.run_dir.journal.read_bytes() == before
    assert run.run_dir.fence.read_bytes() == fence
    run.launch = 1
    run.start()
    assert run.leave() == 3
    assert run.run_dir.journal.read_bytes() == before


def test_nodes_that_cannot_start_are_named_with_what_they_printed(cluster: Begin) -> None:
    run = cluster("ddp.py", max_failures=1)
    (run.run_dir.root / "broken").write_text("n2")
    run.start()
    assert run.leave() == 3, run.all_logs()
    beat = read_record(run.run_dir.launch(1).beat, CoordinatorBeat)
    assert beat is not None
    assert beat.missing == beat.excluded == {"n2": "srun: error: no such directory"}
    assert run.outcomes() == [], "no attempt fails for it: the server starts another launch"


def test_requests_for_a_rank_reach_its_node(cluster: Begin) -> None:
    run = cluster("loaders.py")
    run.start()
    run.reach_step(1)
    stacks = run.run_dir.attempt(1).rank(1).stacks
    post_request(run.run_dir, ControlMessage(MessageType.STACK, 1, 1))
    until(lambda: regular_size(stacks) > 0, "rank 1 has dumped its stacks")
    post_request(run.run_dir, ControlMessage(MessageType.CHAOS, 1, 1, fault=Fault.KILL))
    run.reach_record(RecordType.ATTEMPT_ENDED)
    (injected,) = run.records(RecordType.FAULT_INJECTED)
    assert (injected.rank, injected.fault) == (1, Fault.KILL)
    run.want(JobIntent.CANCEL)
    assert run.leave() == 0
    assert run.outcomes()[0]["signal"] == "SIGKILL"


@pytest.mark.parametrize("busy", ["n1", "n2"])
def test_an_attempt_that_is_ended_before_a_node_has_begun_it_ends_at_once(cluster: Begin, busy: str) -> None:
    """n1 is to serve the store before any node begins; to n2 the orders to begin and to end come together."""
    run = cluster("ddp.py", "1:1:kill")
    run.start()
    run.reach_record(RecordType.RETRY_DECIDED)
    node = run.node_keeper(busy)
    os.kill(node, signal.SIGSTOP)
    run.reach_record(RecordType.ATTEMPT_STARTED, 2)
    run.want(JobIntent.CANCEL)
    run.reach_record(RecordType.STOP_REQUESTED)
    os.kill(node, signal.SIGCONT)
    assert run.finish() == "cancelled"
    assert run.classes() == ["signal", "cancelled"], "no node is lost"


def common_step(run: ClusterRun) -> int:
    status = run.status(0)
    assert status is not None
    assert status.step is not None
    return status.step


@pytest.mark.soak
@pytest.mark.parametrize("options", [{"warm": False}, {"nodes": 1, "ranks_per_node": 2}, {"ranks_per_node": 2}])
def test_cold_ranks_a_single_node_and_several_ranks_on_each_do_the_same(
    cluster: Begin, options: dict[str, Any]
) -> None:
    run = cluster("ddp.py", "1:7:kill", **options)
    run.start()
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["signal", "success"]
    assert run.steps(0)[1][0] == 6


@pytest.mark.soak
def test_a_node_whose_keeper_gets_sigterm_drains_the_attempt_and_is_replaced(cluster: Begin) -> None:
    run = cluster("loaders.py")
    run.start()
    run.reach_step(2)
    os.kill(run.node_keeper("n2"), signal.SIGTERM)
    run.reach_record(RecordType.RESUMED)
    run.want(JobIntent.CANCEL)
    assert run.leave() == 0
    assert run.classes() == ["preempted", "cancelled"]
    assert [record.hosts for record in run.records(RecordType.ATTEMPT_STARTED)] == [["n1", "n2"]] * 2
    assert run.steps(0)[1][0] == run.steps(0)[0][-1] + 1


@pytest.mark.parametrize(
    "order",
    ["one rank first", *(pytest.param(order, marks=pytest.mark.soak) for order in ("ranks first", "agents first"))],
)
def test_an_allocation_that_ends_may_stop_its_processes_in_any_order(
    cluster: Begin, undisturbed: str, order: str
) -> None:
    """All get SIGTERM; a rank may lose its connection to one that got it before."""
    run = cluster("ddp.py", max_failures=1)
    run.start()
    run.reach_step(7)
    ranks = [run.pid(rank) for rank in (0, 1)]
    nodes = [run.node_keeper(host) for host in run.hosts]
    agents = [agent_of(rank) for rank in ranks]
    first = {"one rank first": ranks[1:], "ranks first": ranks, "agents first": [*agents, *ranks]}[order]
    for pid in first:
        send_sigterm(pid)
    until(lambda: not any(map(alive, ranks)), "the ranks have ended")
    for pid in [*nodes, run.keeper.pid]:
        send_sigterm(pid)
    assert run.leave() == 0, run.all_logs()
    assert run.classes() == ["preempted"], run.all_logs()
    run.launch = 2
    run.want(JobIntent.RUN)
    run.start()
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["preempted", "success"]
    assert run.weights() == undisturbed


def agent_of(rank: int) -> int:
    agent = parent_of(rank)
    assert agent is not None
    return agent


def send_sigterm(pid: int) -> None:
    with suppress(ProcessLookupError):  # it has ended already
        os.kill(pid, signal.SIGTERM)


def test_a_rank_on_a_node_that_saves_at_the_end_of_the_allocation_is_not_killed_because_another_has_ended(
    cluster: Begin,
) -> None:
    run = cluster("stubborn.py", "save-slowly", max_failures=1)
    run.start()
    for rank in (0, 1):
        run.reach_step(1, rank=rank)
    for rank in (1, 0):
        run.signal_rank(rank, signal.SIGTERM)
    until(lambda: not run.rank_lives(0), "rank 0, which has no handler, has ended")
    send_sigterm(run.node_keeper("n1"))
    run.reach_record(RecordType.STOP_REQUESTED)
    (run.run_dir.snapshots / "may-save").touch()
    send_sigterm(run.keeper.pid)
    assert run.leave() == 0
    assert "saved" in run.log(1)
    assert run.classes() == ["preempted"]


def test_a_rank_on_a_node_that_somebody_ends_by_sigterm_has_failed(cluster: Begin) -> None:
    run = cluster("ddp.py", max_failures=1)
    run.start()
    run.reach_step(7)
    run.signal_rank(1, signal.SIGTERM)
    assert run.finish() == "succeeded", run.all_logs()
    assert [(one["class"], one["rank"]) for one in run.outcomes()] == [("signal", 1), ("success", None)]


@pytest.mark.soak
@needs_hosts
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seconds", "classes"), [(45.0, ["success"]), (None, ["host_lost", "success"])])
def test_a_cut_of_45_seconds_that_heals_costs_no_restart_and_a_longer_one_does(
    cluster: Begin, seconds: float | None, classes: list[str]
) -> None:
    with network_hosts(2, "10.81.0") as (switch, hosts):
        run = cluster("paces.py", "400", host_timeout=60.0, hang_timeout=20.0, min_nodes=1)
        run.addresses = {host: f"{each.address}@{each.pid}" for host, each in zip(run.hosts, hosts, strict=True)}
        run.own_address, run.enter = hosts[0].address, hosts[0].command()
        run.start()
        run.reach_step(40)
        ranks = run.of_host("n2")
        switch.run("ip", "link", "set", hosts[1].link, "nomaster")
        cut_at = time.monotonic()
        if seconds is not None:
            time.sleep(seconds)
        else:
            until(lambda: run.attempt == 2, "the next attempt has begun", 120)
            print(f"the next attempt began {time.monotonic() - cut_at:.0f} s after the cut")
            assert not any(map(alive, ranks)), "what was cut off has ended before"
        switch.run("ip", "link", "set", hosts[1].link, "master", "switch")
        assert run.finish() == "succeeded", run.all_logs()
        assert run.classes() == classes
