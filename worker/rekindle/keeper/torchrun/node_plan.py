"""What an agent is given at the start of an attempt: its node's plan, and the network interface of its ranks."""

import fcntl
import json
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from rekindle.contract.connection_owner import NodePeers
from rekindle.contract.environment import NODE, NODE_PEERS, NODE_PLAN
from rekindle.contract.run_dir.json_records import Count, JsonRecord, Line

_GLOO = "GLOO_SOCKET_IFNAME"
_VARIABLES = (_GLOO, "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_SIOCGIFADDR = 0x8915
_NAME_BYTES = 16
_REQUEST_BYTES = 40  # struct ifreq: a name, then of a sockaddr_in family, port and address


@dataclass(frozen=True, slots=True)
class NodePlan(JsonRecord):
    """The position of one node in an attempt. The coordinator makes it, which must not import torch."""

    node: Count  # 0 is the first, which serves the store of the ranks
    nodes: Count
    ranks_per_node: Count
    address: Line  # IPv4, of this node: what its ranks listen on
    store_host: Line  # IPv4, of the first node
    store_port: Count
    addresses: list[Line] = field(default_factory=list)  # of all nodes of the attempt, by number
    secret: Line = ""  # of the attempt, given to its store too: by it the nodes ask each other whose a connection is

    def first_rank(self) -> int:
        """The first rank of this node; the others are numbered from it without a gap."""
        return self.node * self.ranks_per_node

    def world_size(self) -> int:
        """Ranks of the attempt, of all nodes together."""
        return self.nodes * self.ranks_per_node


def loopback_interfaces(environment: Mapping[str, str]) -> dict[str, str]:
    """What makes gloo, NCCL and TensorPipe listen on loopback only, where the job's ``environment`` names no interface.

    Left to themselves they choose that of the host's name, or the first that is up: other machines can connect to it.
    """
    return {name: "lo" for name in _VARIABLES if name not in environment}


def node_environment(environment: Mapping[str, str], plan: NodePlan) -> dict[str, str]:
    """What an agent on a cluster gets: its plan, and the interface of its node's address unless the job names one.

    Where that is so, connections to its ranks come from the addresses of the attempt's nodes only. Ranks of a single
    node use loopback. Raises OSError where no interface has the address.
    """
    own = {NODE: str(plan.node), NODE_PLAN: json.dumps(plan.to_json())}
    if plan.nodes == 1:
        return {**own, **loopback_interfaces(environment)}
    interface = interface_of(plan.address)
    if _GLOO not in environment:
        own[NODE_PEERS] = NodePeers(tuple(plan.addresses), plan.store_port + 1, plan.secret).to_text()
    return {**own, **{name: interface for name in _VARIABLES if name not in environment}}


def interface_of(address: str) -> str:
    """The name of this machine's interface whose first IPv4 address it is. Raises OSError where there is none."""
    if address.startswith("127."):
        return "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack(f"{_REQUEST_BYTES}s", name.encode()[: _NAME_BYTES - 1])
            with suppress(OSError):  # it has no address
                answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
                if socket.inet_ntoa(answer[_NAME_BYTES + 4 : _NAME_BYTES + 8]) == address:
                    return name
    raise OSError(f"no network interface of {socket.gethostname()} has the address {address}")
