"""What the coordinator and the keepers of the nodes send each other: one JSON object a line, no pickle anywhere."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from rekindle.contract.files import parse_json
from rekindle.contract.run_dir.attempt_samples import UsageSample
from rekindle.contract.run_dir.control_messages import ControlMessage
from rekindle.contract.run_dir.json_records import structure
from rekindle.keeper.attempt_result import AttemptResult, Ending, RankResult
from rekindle.keeper.hangs.culprit import WorldObservation
from rekindle.keeper.torchrun.node_plan import NodePlan

MAX_MESSAGE_BYTES = 32 << 20  # of a message: stacks and collectives of all ranks of a node
MAX_HELLO_BYTES = 4096  # of the first one, which anybody may send


@dataclass(frozen=True, slots=True)
class AttemptMessage:
    """Base of the messages that concern one attempt, and mean nothing to another."""

    attempt: int


# --- from a node


@dataclass(frozen=True, slots=True)
class Versions:
    """What must be the same on all nodes: another torch sums in another order, or speaks another protocol."""

    rekindle: str
    torch: str
    python: str

    def __str__(self) -> str:
        return f"rekindle {self.rekindle}, torch {self.torch}, Python {self.python}"


@dataclass(frozen=True, slots=True)
class NodeHello:
    """The first message of a connection. A node has one for messages, and others for its heartbeat (``beat``)."""

    secret: str
    host: str
    keeper: str  # random: another one for each process
    beat: bool = False
    versions: Versions | None = None
    written: int = 0  # see ``Beat``
    clock: float = 0.0  # the node's time of day, in seconds since the epoch


@dataclass(frozen=True, slots=True)
class Beat:
    """The heartbeat, every second. ``sent``: seconds of the node's CLOCK_MONOTONIC.

    ``written``: number of the latest proof that the node can write the run directory; ``trouble``: why it cannot.
    """

    sent: float
    written: int = 0
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Prepared(AttemptMessage):
    """The first node serves the store of the ranks at ``port``, or cannot, for the reason ``error``."""

    port: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RecordWritten(AttemptMessage):
    """A record for the journal."""

    type: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class UsageTaken(AttemptMessage):
    """What the node's ranks use."""

    sample: UsageSample


@dataclass(frozen=True, slots=True)
class Proposal(AttemptMessage):
    """How the attempt ends, as far as this node sees."""

    ending: Ending


@dataclass(frozen=True, slots=True)
class NodeStalled(AttemptMessage):
    """For ``seconds`` no rank of this node made progress, which is too long. ``stopped``: by a signal.

    ``shown``: seconds without progress that are to be shown, which are too long in ``left`` seconds.
    """

    seconds: float | None
    stopped: bool = False
    shown: float | None = None
    left: float = 0.0


@dataclass(frozen=True, slots=True)
class RanksEnded(AttemptMessage):
    """After a failure: ``cause_known`` that is no consequence of another, or no rank of this node is left.

    ``by_sigterm``: nothing else has ended what has ended on this node.
    """

    cause_known: bool
    by_sigterm: bool


@dataclass(frozen=True, slots=True)
class Observed(AttemptMessage):
    """The answer to ``Observe``."""

    world: WorldObservation


class StoreReleased(AttemptMessage):
    """The ranks of this node have ended, or used up their time: they need the store no more."""


@dataclass(frozen=True, slots=True)
class NodeResult(AttemptMessage):
    """What is left of the attempt on this node; ``result`` comes without its ranks, which JSON could not number."""

    ranks: list[RankResult]
    result: AttemptResult


@dataclass(frozen=True, slots=True)
class Terminated:
    """The node's keeper got SIGTERM, as every process does when the machine shuts down."""


# --- from the coordinator


@dataclass(frozen=True, slots=True)
class Welcome:
    """The node is one of the job's. Its ranks must not outlive ``lease`` seconds without an answer to a heartbeat."""

    lease: float


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """The answer to the ``Beat`` of that time."""

    sent: float


@dataclass(frozen=True, slots=True)
class Prepare(AttemptMessage):
    """For the first node: serve the store, to itself and the ``addresses`` of the other nodes; see ``NodePlan``."""

    address: str
    addresses: list[str]
    secret: str


@dataclass(frozen=True, slots=True)
class Begin(AttemptMessage):
    """Start the ranks."""

    plan: NodePlan
    environment: dict[str, str]
    log_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class AllRunning(AttemptMessage):
    """The ranks of all nodes run. ``others``: pids of those that write no metrics, on their own nodes."""

    others: list[int]


@dataclass(frozen=True, slots=True)
class Discount(AttemptMessage):
    """The ranks could not reach each other for ``seconds``: that is no hang."""

    seconds: float


class Sampling(StrEnum):
    """How to find out where the ranks are."""

    LATEST = "latest"  # as they were sampled last, without a signal to them
    HANG = "hang"  # as they were sampled last, with their stacks
    FAILURE = "failure"  # now that one has failed


@dataclass(frozen=True, slots=True)
class Observe(AttemptMessage):
    """Where are your ranks?"""

    sampling: Sampling


@dataclass(frozen=True, slots=True)
class End(AttemptMessage):
    """The attempt ends so on all nodes."""

    ending: Ending


class Kill(AttemptMessage):
    """Nothing more is to be learned from the ranks that have not failed."""


class Finish(AttemptMessage):
    """No node needs the store: end every process, and report."""


@dataclass(frozen=True, slots=True)
class UserRequest:
    """A user asks for stacks, or injects a fault."""

    message: ControlMessage


@dataclass(frozen=True, slots=True)
class Leave:
    """No further attempt follows here. ``is_over``: the job has ended, and needs its memory no more."""

    is_over: bool


Message = (
    NodeHello | Beat | Prepared | RecordWritten | UsageTaken | Proposal | NodeStalled | RanksEnded | Observed
    | StoreReleased | NodeResult | Terminated | Welcome | BeatAnswer | Prepare | Begin | AllRunning | Discount
    | Observe | End | Kill | Finish | UserRequest | Leave
)  # fmt: skip
_CLASSES: dict[str, type[Any]] = {cls.__name__: cls for cls in Message.__args__}


def encode(message: Message) -> bytes:
    return json.dumps({"kind": type(message).__name__, **asdict(message)}).encode() + b"\n"


def decode(line: bytes) -> Message | None:
    """None for what is no message."""
    value = parse_json(line)
    if not isinstance(value, dict) or (cls := _CLASSES.get(str(value.get("kind")))) is None:
        return None
    try:
        made: Message = structure(cls, value)
    except ValueError:
        return None
    return made
