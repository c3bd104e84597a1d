"""The nodes in an attempt, and what their keepers have reported of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rekindle.contract.run_dir.control import ControlMessage, MessageType
from rekindle.keeper.attempt_result import Ending
from rekindle.keeper.cluster.messages import (
    Discount,
    Message,
    NodeResult,
    Observed,
    Prepared,
    Proposal,
    Quiet,
    RanksEnded,
    Request,
    Stalled,
)
from rekindle.keeper.cluster.nodes import Node
from rekindle.keeper.hangs.culprit import WorldObservation

_SILENT = 5.0  # seconds without a heartbeat, after which the ranks of other nodes may wait for this one


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


class Parts:
    """All of them, in the order of the nodes: the first is the head."""

    def __init__(self, attempt: int, nodes: Sequence[Node], ranks: int) -> None:
        """``ranks``: on each node."""
        self._attempt, self._ranks = attempt, ranks
        self._parts = [Part(node, number, ranks) for number, node in enumerate(nodes)]

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def head(self) -> Part:
        return self._parts[0]

    def send(self, message: Message) -> None:
        """To every node."""
        for part in self._parts:
            part.node.send(message)

    def pass_on(self, message: ControlMessage) -> None:
        """A request of a user, to the node that it concerns."""
        if message.attempt == self._attempt and message.type in (MessageType.STACK, MessageType.CHAOS):
            number = 0 if message.rank is None else message.rank // self._ranks
            if 0 <= number < len(self._parts):
                self._parts[number].node.send(Request(message))

    def any_lost(self) -> bool:
        return any(part.is_lost for part in self._parts)

    def any_silent(self) -> bool:
        """Whether ranks may wait for a node that does not answer."""
        return any(part.node.silent_for() > _SILENT for part in self._parts)

    def live_numbers(self) -> list[int]:
        """Of the nodes whose ranks still run, as far as known."""
        return [part.number for part in self._parts if not part.is_lost and part.proposal is None]

    def note_silence(self) -> None:
        """After a cut the ranks' own connections recover only later: they wait as long again, at most."""
        for part in self._parts:
            silent = part.node.silent_for()
            if silent > _SILENT:
                part.silent_for = max(part.silent_for, silent)
            elif part.silent_for:
                self.send(Discount(self._attempt, 2 * part.silent_for))
                for each in self._parts:
                    each.stalled = None
                part.silent_for = 0.0
