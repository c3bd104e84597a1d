"""What one node's agent is given at the start of an attempt that runs on several nodes."""

from dataclasses import dataclass, field

from rekindle.contract.run_dir.json_records import Count, JsonRecord, Line


@dataclass(frozen=True, slots=True)
class NodePlan(JsonRecord):
    """The place of one node in an attempt. Made by the leading keeper: it must not import torch."""

    node: Count  # 0 is the head
    nodes: Count
    ranks_per_node: Count
    address: Line  # IPv4, of this node: what its ranks listen on
    store_host: Line  # IPv4, of the head, where it serves the store of the ranks
    store_port: Count
    addresses: list[Line] = field(default_factory=list)  # of all nodes of the attempt, by number
    secret: Line = ""  # of the attempt, given to its store too: by it the nodes ask each other whose a connection is

    def first_rank(self) -> int:
        """Of this node; its ranks are numbered from it without a gap."""
        return self.node * self.ranks_per_node

    def world_size(self) -> int:
        """Ranks of the attempt, of all nodes together."""
        return self.nodes * self.ranks_per_node
