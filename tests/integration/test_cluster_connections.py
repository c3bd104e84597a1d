"""Which connections a coordinating keeper accepts, and how long a node waits for one that does not answer."""

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.waiting import until
from rekindle.contract.files import write_json
from rekindle.contract.job import RunIntent
from rekindle.contract.rank_traces import Frame
from rekindle.contract.run_dir.control_messages import ControlMessage, MessageType
from rekindle.contract.run_dir.coordinator_records import Coordinator
from rekindle.contract.run_dir.paths import LaunchDir, RunDir
from rekindle.contract.states import JobIntent
from rekindle.keeper.attempt_result import AttemptResult, Ending, RankResult
from rekindle.keeper.buffered_journal import SupersededError
from rekindle.keeper.cluster import connections
from rekindle.keeper.cluster.connections import CoordinatorLostError, HomeProof, MessageChannel, NodeLink
from rekindle.keeper.cluster.coordinator import LaunchOwner, difference
from rekindle.keeper.cluster.messages import (
    MAX_HELLO_BYTES,
    Finish,
    Message,
    NodeHello,
    NodeResult,
    NodeStalled,
    Observed,
    UserRequest,
    Versions,
    decode,
    encode,
)
from rekindle.keeper.cluster.nodes import Nodes, lease_of
from rekindle.keeper.event_loop import EventLoop
from rekindle.keeper.hangs.culprit import RankObservation, WorldObservation
from rekindle.keeper.rank_processes.probe import RankSample

SECRET = "s" * 64  # of a test
VERSIONS = Versions("1", "2", "3")


@pytest.fixture
def events() -> Iterator[EventLoop]:
    loop = EventLoop()
    yield loop
    loop.close()


@pytest.fixture
def nodes(events: EventLoop, tmp_path: Path) -> Nodes:
    """Nodes of two hosts whose keepers nobody starts; both have proved that they write the run directory."""
    launch = proved(tmp_path, "n1", "n2")
    return Nodes(["n1", "n2"], _never, "127.0.0.1", SECRET, events, 60.0, launch)


def proved(directory: Path, *hosts: str) -> LaunchDir:
    """A launch of which each host has written its first proof."""
    launch = LaunchDir(directory)
    for host in hosts:
        write_json(launch.proof(host), {"number": 1})
    return launch


def _never(host: str, stderr: object) -> object:
    raise AssertionError


def connect(nodes: Nodes, data: bytes) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", nodes.port))
    sock.sendall(data)
    sock.settimeout(0.05)
    return sock


def wait(events: EventLoop, condition: Callable[[], object]) -> None:
    until(lambda: events.wait(0.02) and bool(condition()), "it happens")


def closed(sock: socket.socket) -> bool:
    with suppress(TimeoutError):
        try:
            return sock.recv(1) == b""
        except ConnectionResetError:
            return True
    return False


FORGED = [
    encode(NodeHello("t" * 64, "n1", "k", versions=VERSIONS)),
    encode(NodeHello("", "n1", "k", versions=VERSIONS)),
    encode(NodeHello("n\u00f6", "n1", "k", versions=VERSIONS)),
    encode(Finish(1)),
    b"GET / HTTP/1.1\r\n\r\n",
    b"[" * 3000 + b"\n",
    b"x" * (MAX_HELLO_BYTES + 1),
    json.dumps({"kind": "NodeHello", "secret": 7}).encode() + b"\n",
    encode(NodeHello(SECRET, "n9", "k", versions=VERSIONS)),  # a host of another job
    encode(NodeHello(SECRET, "n1", "k")),
    encode(NodeHello(SECRET, "n1", "k", beat=True)),  # the heartbeat of no keeper
]


@pytest.mark.parametrize("data", FORGED, ids=range(len(FORGED)))
def test_a_connection_without_the_secret_or_of_no_node_is_closed(events: EventLoop, nodes: Nodes, data: bytes) -> None:
    with connect(nodes, data) as sock:
        wait(events, lambda: closed(sock))
    assert nodes.answering() == []


def test_only_the_first_keeper_of_a_node_is_admitted(events: EventLoop, nodes: Nodes) -> None:
    with connect(nodes, encode(NodeHello(SECRET, "n2", "a", versions=VERSIONS, written=1))) as first:
        wait(events, nodes.answering)
        with connect(nodes, encode(NodeHello(SECRET, "n2", "b", versions=VERSIONS))) as second:
            wait(events, lambda: closed(second))
        (node,) = nodes.answering()
        assert (node.host, node.keeper, node.address) == ("n2", "a", "127.0.0.1")
        first.close()
        wait(events, lambda: not node.is_alive)
    assert nodes.answering() == []


@pytest.mark.parametrize(("ends", "reason"), [(False, "has not answered for"), (True, "has ended")])
def test_a_node_leaves_a_coordinator_that_ends_or_does_not_answer(
    events: EventLoop, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool, reason: str
) -> None:
    monkeypatch.setattr(connections, "BEAT_INTERVAL", 0.02)
    own = EventLoop()
    proof = HomeProof(LaunchDir(tmp_path).proof("n1"), own.close)
    coordinator = Coordinator("127.0.0.1", nodes.port, SECRET, "h", 1)
    hello = NodeHello(SECRET, "n1", "k", versions=VERSIONS)
    link = NodeLink(coordinator, replace(hello, written=proof.written), proof, own)
    wait(events, lambda: own.wait(0.01) and link.is_welcome)
    (node,) = nodes.answering()
    wait(events, lambda: own.wait(0.01) and node.offset < 1.0)
    assert abs(node.offset) < 1.0  # the same clock here
    if ends:
        node.channel.close()
    else:
        link._lease = 0.3
    with pytest.raises(CoordinatorLostError, match=reason):  # noqa: PT012  # after as many waits as it takes
        while True:
            own.wait(0.05)
    os.kill(proof.pid, signal.SIGKILL)
    os.waitpid(proof.pid, 0)
    own.close()


def test_a_message_larger_than_the_sockets_buffers_arrives_whole(events: EventLoop) -> None:
    one, other = socket.socketpair()
    received: list[Message] = []
    sender = MessageChannel(one, events, received.append, lambda _: None)
    receiver = MessageChannel(other, events, received.append, lambda _: None)
    receiver.trust()
    sample = RankSample(1, 7, "train", 1, 2.0, 3, "S")
    seen = RankObservation(sample, [Frame("train.py", 3, "main")], Frame("train.py", 3, "main"))
    sent = Observed(1, WorldObservation(running=[seen], stacks={"1": "x" * (4 << 20)}, timeout=2.0))
    sender.send(sent)
    assert not received, "nothing waits for the other end"
    wait(events, lambda: received)
    assert received == [sent]


def test_messages_survive_their_encoding() -> None:
    result = NodeResult(1, [RankResult(0, 7, 1, ended_at=2.5)], AttemptResult(1, 2, Ending.DONE, gpus=["0"]))
    for message in (NodeStalled(1, None), Finish(2), NodeHello("s", "n1", "k", versions=VERSIONS), result):
        assert decode(encode(message)) == message
    stack = ControlMessage(MessageType.STACK, 1, 0)
    assert decode(encode(UserRequest(stack))) == UserRequest(stack)
    assert decode(b"[]") is decode(b"nonsense") is decode(b'{"kind": "Other"}') is None


def test_a_leader_of_an_earlier_launch_or_restart_owns_nothing(events: EventLoop, tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    run_dir.launch(2).root.mkdir(parents=True)
    write_json(run_dir.intent, RunIntent(JobIntent.RUN, 1, [], launch=2).to_json())
    with pytest.raises(SupersededError, match="launch 2 has taken over from launch 1"):
        LaunchOwner(run_dir, 1, 0).check()
    first, second = LaunchOwner(run_dir, 2, 0), LaunchOwner(run_dir, 2, 1)
    nodes = Nodes([], _never, "127.0.0.1", SECRET, events, 1.0, run_dir.launch(2))
    first.publish(Coordinator("127.0.0.1", 1, SECRET, "n1", 1, 0), nodes)
    second.publish(Coordinator("127.0.0.1", 1, SECRET, "n2", 1, 1), nodes)
    second.beat()
    with pytest.raises(SupersededError, match="restart 1 of launch 2"):
        first.beat()
    beat = json.loads(run_dir.launch(2).beat.read_text())
    assert (beat["beat"], beat["restart"], beat["missing"]) == (2, 1, {})
    assert run_dir.launch(2).leader.stat().st_mode & 0o777 == 0o600


def test_a_node_gives_up_before_its_leader_gives_it_up() -> None:
    for timeout in (4.0, 15.0, 60.0, 600.0):
        assert lease_of(timeout) < timeout
    assert lease_of(60.0) > 46.0, "a cut of 45 seconds costs no restart"


def test_nodes_that_differ_are_named_with_what_they_have() -> None:
    assert difference({"n1": VERSIONS, "n2": VERSIONS}) is None
    sentence = difference({"n1": VERSIONS, "n2": Versions("1", "2.14", "3")})
    assert "n1 has rekindle 1, torch 2, Python 3, n2 has rekindle 1, torch 2.14, Python 3" in sentence


def test_a_silent_node_is_lost_after_the_host_timeout(events: EventLoop, tmp_path: Path) -> None:
    nodes = Nodes(["n1"], _never, "127.0.0.1", SECRET, events, 0.2, proved(tmp_path, "n1"))
    with connect(nodes, encode(NodeHello(SECRET, "n1", "a", versions=VERSIONS, written=1))):
        wait(events, nodes.answering)
        (node,) = nodes.answering()
        until(lambda: nodes.check() or node.lost, "it counts as lost")
    assert node.lost == "nothing has been heard of it for 0 seconds"
