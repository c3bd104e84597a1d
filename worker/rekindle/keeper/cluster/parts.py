"""One node in an attempt, and what its keeper has reported of it."""

from dataclasses import dataclass

from rekindle.keeper.attempt_result import Ending
from rekindle.keeper.cluster.messages import (
    Message,
    NodeResult,
    Observed,
    Prepared,
    Proposal,
    Quiet,
    RanksEnded,
    Stalled,
)
from rekindle.keeper.cluster.nodes import Node
from rekindle.keeper.hangs.culprit import WorldObservation

SILENT = 5.0  # seconds without a heartbeat, after which the ranks of other nodes may wait for this one


@dataclass(slots=True)
class Part:
    """The part of the attempt that runs on one node. ``ranks``: on each."""

    node: Node
    number: int
    ranks: int
    prepared: Prepared | None = None
    running: list[dict[str, int]] | None = None  # its ranks, as in the record RANKS_RUNNING
    proposal: Ending | None = None
    stalled: Stalled | None = None
    observed: WorldObservation | None = None
    ended: RanksEnded | None = None
    is_quiet: bool = False
    result: NodeResult | None = None
    silent_for: float = 0.0  # seconds, the longest so far of the silence that lasts

    @property
    def is_lost(self) -> bool:
        return not self.node.is_alive

    @property
    def numbers(self) -> range:
        """Its ranks."""
        return range(self.number * self.ranks, (self.number + 1) * self.ranks)

    def receive(self, message: Message) -> None:
        """Note what the node has reported; what is no such message is ignored."""
        match message:
            case Prepared():
                self.prepared = message
            case Proposal():
                self.proposal = message.ending
            case Stalled():
                self.stalled = message
            case RanksEnded():
                self.ended = message
            case Observed():
                self.observed = message.world
            case Quiet():
                self.is_quiet = True
            case NodeResult():
                self.result = message
