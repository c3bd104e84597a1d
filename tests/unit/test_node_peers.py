import os
import socket
import threading
from collections.abc import Iterator

import pytest

from rekindle.contract import connection_owner
from rekindle.contract.connection_owner import NodePeers, OwnerServer
from rekindle.keeper.torchrun.node_plan import NodePlan, interface_of, node_environment

SECRET = "ab" * 32


@pytest.fixture
def server() -> Iterator[OwnerServer]:
    with OwnerServer(("127.0.0.3", 0), SECRET) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """What ``127.0.0.3`` has connected, and our end of it."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname(), source_address=("127.0.0.3", 0)) as theirs,
        listener.accept()[0] as ours,
    ):
        yield theirs, ours


def test_a_node_answers_whose_a_connection_is_and_none_once_it_is_closed(server, connected):
    peers = NodePeers(("127.0.0.3",), server.server_address[1], SECRET)
    theirs, ours = connected
    assert peers.peer_uid(ours) == os.geteuid()
    theirs.close()
    assert peers.peer_uid(ours) is None


def test_nobody_gets_an_answer_without_the_secret_and_no_answer_counts_without_it(server, connected):
    port = server.server_address[1]
    with pytest.raises(OSError, match=r"127.0.0.3 does not answer who has connected from its port \d+"):
        NodePeers(("127.0.0.3",), port, "another").peer_uid(connected[1])
    with socket.create_connection(server.server_address) as asking:
        asking.sendall(b'0 ["", 1, "127.0.0.1", 2]\n')
        assert asking.recv(100) == b""


def test_an_answer_to_another_question_does_not_count():
    line = connection_owner._signed(SECRET, "0", "one")
    assert connection_owner._verified(SECRET, line, "one") == "0"
    assert connection_owner._verified(SECRET, line, "another") is None
    assert connection_owner._verified(SECRET, b"\xff\n", "one") is None


def test_without_a_secret_the_address_of_a_node_is_enough(connected):
    assert NodePeers(("127.0.0.3",)).peer_uid(connected[1]) == os.geteuid()


def test_peers_cross_the_environment():
    for peers in (NodePeers(("10.0.0.1", "10.0.0.2"), 4001, SECRET), NodePeers(("10.0.0.1",))):
        assert NodePeers.from_text(peers.to_text()) == peers
    assert NodePeers.from_text("") is None
    assert NodePeers.from_text("port - 10.0.0.1") is None


def test_ranks_listen_on_the_interface_of_their_nodes_address_unless_the_job_names_another():
    plan = NodePlan(1, 2, 4, "127.0.0.3", "127.0.0.2", 4000, ["127.0.0.2", "127.0.0.3"], SECRET)
    assert (plan.first_rank(), plan.world_size()) == (4, 8)
    own = node_environment({"NCCL_SOCKET_IFNAME": "ib0"}, plan)
    assert NodePlan.from_json(plan.to_json()) == plan
    assert {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo", "REKINDLE_NODE": "1"}.items() <= own.items()
    assert "NCCL_SOCKET_IFNAME" not in own
    assert own["REKINDLE_NODE_PEERS"] == f"4001 {SECRET} 127.0.0.2 127.0.0.3"
    assert "REKINDLE_NODE_PEERS" not in node_environment({"GLOO_SOCKET_IFNAME": "ib0"}, plan), "they come from others"


def test_the_ranks_of_a_single_node_use_loopback():
    plan = NodePlan(0, 1, 4, "192.0.2.77", "192.0.2.77", 4000, ["192.0.2.77"], SECRET)
    own = node_environment({}, plan)
    assert {own[f"{name}_SOCKET_IFNAME"] for name in ("GLOO", "NCCL", "TP")} == {"lo"}
    assert "REKINDLE_NODE_PEERS" not in own, "nobody of another machine is one of them"


def test_an_address_that_no_interface_has_is_an_error_that_names_it():
    with pytest.raises(OSError, match=r"no network interface of .* has the address 192.0.2.77"):
        interface_of("192.0.2.77")


def test_the_users_of_a_node_whose_kernel_does_not_name_them_count_as_ours(server, connected, monkeypatch):
    def forbidden(*_: object) -> None:
        raise PermissionError("socket: no netlink here")

    monkeypatch.setattr(connection_owner, "uid_of", forbidden)
    assert NodePeers(("127.0.0.3",), server.server_address[1], SECRET).peer_uid(connected[1]) == os.geteuid()
