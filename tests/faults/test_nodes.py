"""An attempt on several nodes: torchrun's agents, their ranks, the store of the ranks, and what is refused there."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.waiting import until
from faults.intruder import INTRUDER
from network_hosts import Host, needs_hosts, network_hosts
from node_agents import Node, NodesRun

NOBODY = 65534
_ATTACK = """
import encodings.idna, os, socket, sys
os.setresuid(*[int(sys.argv[1])] * 3)
with socket.create_connection((sys.argv[2], int(sys.argv[3])), 30) as connection:
    connection.settimeout(3)
    try:
        print("is closed" if connection.recv(1) == b"" else "is answered")
    except TimeoutError:
        print("is served")  # the store waits for a request
"""


class Cluster(NodesRun):
    """Two nodes with two warm ranks each, and a third host."""

    hosts: list[Host]
    attempt = 0

    def begin(self, nodes: list[Node] | None = None, *, late: bool = False) -> int:
        self.attempt += 1
        for name in ("stop", "late"):
            (self.run_dir.snapshots / name).unlink(missing_ok=True)
        if late:
            (self.run_dir.snapshots / "late").touch()
        return self.start(self.attempt, nodes)

    def reach_step(self, step: int, ranks: int = 4) -> None:
        for rank in range(ranks):
            until(lambda rank=rank: f"step {step}\n" in self.log(rank, attempt=self.attempt), self.all_logs(), 120)

    def stop(self) -> None:
        (self.run_dir.snapshots / "stop").touch()
        assert [node.wait() for node in self.nodes] == [0, 0], self.all_logs()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    run = Cluster(tmp_path_factory.mktemp("nodes") / "run", "group.py", "nodes", ranks=2)
    with network_hosts(3) as (_, hosts):
        run.hosts = hosts
        for host in hosts[:2]:
            run.add_node(host.address, host.command())
        try:
            for node in run.nodes:
                node.ready()
            yield run
        finally:
            run.close()


def test_cuda_is_usable_in_each_rank_of_a_node(tmp_path):
    run = NodesRun(tmp_path / "run", "bad_fork.py", ranks=2, nodes=1)
    node = run.add_node("127.0.0.1")
    try:
        node.ready()
        run.start(attempt=2)  # in the first one, the script fails
        assert node.wait() == 0, run.all_logs()
        assert [run.log(rank, attempt=2) for rank in (0, 1)] == ["good fork\n"] * 2
    finally:
        run.close()


def connect_to_store(address: str, port: int, *attackers: tuple[Host, int]) -> list[str]:
    """What becomes of connections from hosts and their users, all at the same time."""
    commands = [host.command(sys.executable, "-c", _ATTACK, uid, address, port) for host, uid in attackers]
    attacks = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    return [attack.communicate(timeout=250)[0].strip() for attack in attacks]


@needs_hosts
def test_ranks_of_two_nodes_form_groups_and_listen_on_the_address_of_their_node_only(cluster):
    cluster.begin()
    cluster.reach_step(1)
    for rank in range(4):
        lines = cluster.log(rank).splitlines()
        assert lines[0] == f"place {rank % 2} 2 {rank // 2} 2 {cluster.nodes[0].address}"
        assert {"torch in []", "sum 10", "hosts host1 host1 host2 host2", "own store has x"} <= set(lines)
        assert ("ends 5" in lines) is (rank in (0, 3))
    assert len({cluster.log(rank).split("weights ")[1].split()[0] for rank in range(4)}) == 1
    head, other = (host.listeners() for host in cluster.hosts[:2])
    addresses = [node.address for node in cluster.nodes]
    assert {address for address, _, _ in head} == {addresses[0], "127.0.0.2"}, head
    assert {name for address, _, name in head if address == "127.0.0.2"} == {"rekindle-store"}
    assert {address for address, _, _ in other} == {addresses[1]}, other
    assert {name for _, _, name in other} >= {"rekindle-owners", "rank 2", "rank 3"}
    cluster.stop()


@needs_hosts
def test_the_store_refuses_a_third_host_and_another_user_of_a_node(cluster):
    port = cluster.begin()
    cluster.reach_step(1)
    (_, second, third), head = cluster.hosts, cluster.nodes[0].address
    answers = connect_to_store(head, port, (second, os.geteuid()), (third, os.geteuid()), (second, NOBODY))
    assert answers == ["is served", "is closed", "is closed"]
    log = cluster.run_dir.keeper_log.read_text()
    assert f"refused a connection of {third.address}, which is no node of this attempt," in log
    assert f"refused a connection of user {NOBODY} of {second.address} to" in log
    cluster.stop()


@needs_hosts
@pytest.mark.parametrize(
    ("where", "who", "why"),
    [(2, 0, "10.82.0.3, which is no node of this attempt,"), (0, NOBODY, f"user {NOBODY} of 10.82.0.1")],
)
def test_a_group_that_a_third_host_or_another_user_of_a_node_has_joined_is_not_used(cluster, where, who, why):
    """On other nodes as the first time: here host 2 is the head."""
    cluster.begin(cluster.nodes[::-1], late=True)
    head = cluster.hosts[1]
    ports = until(lambda: [port for _, port, name in head.listeners() if name == "rank 0"], "rank 0 listens", 30)
    intruder = cluster.hosts[where].command(sys.executable, "-c", INTRUDER, who, cluster.nodes[1].address, "", *ports)
    with subprocess.Popen(intruder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"connected\n"
        (cluster.run_dir.snapshots / "late").unlink()
        assert 1 in [node.wait() for node in cluster.nodes]
        process.communicate()
    assert f"ForeignPeerError: {why} has connected to port" in cluster.log(0, "stderr", cluster.attempt)


@needs_hosts
def test_ranks_learn_at_once_that_those_of_another_node_have_ended_and_the_next_agents_wait_meanwhile(cluster):
    cluster.begin()
    cluster.reach_step(1)
    waiting = [node.answer("prefork", cluster.attempt + 1) for node in cluster.nodes]
    os.kill(cluster.nodes[1].agent, signal.SIGKILL)
    assert [node.wait() for node in cluster.nodes] == [1, -signal.SIGKILL]
    cluster.begin()
    assert [node.agent for node in cluster.nodes] == waiting
    cluster.reach_step(1)
    cluster.stop()


@pytest.mark.soak
def test_ranks_in_fresh_interpreters_on_two_addresses_of_one_machine(tmp_path: Path):
    run = NodesRun(tmp_path / "run", "group.py", "nodes", warm=False)
    try:
        for node in [run.add_node(address) for address in ("127.0.0.2", "127.0.0.3")]:
            node.ready()
        (run.run_dir.snapshots / "stop").touch()
        run.start()
        assert [node.wait() for node in run.nodes] == [0, 0], run.all_logs()
        for rank in (0, 1):
            assert f"place 0 1 {rank} 2 127.0.0.2\ntorch in []\nsum 3\n" in run.log(rank)
            assert run.log(rank).endswith("finished\n")
    finally:
        run.close()
