"""What the leading keeper and the keepers of the nodes send each other: one JSON object a line, no pickle anywhere."""

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from rekindle.contract.files import parse_json
from rekindle.contract.run_dir.control import ControlMessage
from rekindle.contract.run_dir.json_records import structure
from rekindle.contract.run_dir.usage import UsageSample
from rekindle.keeper.attempt_result import Ending, RankResult
from rekindle.keeper.hangs.culprit import WorldObservation
from rekindle.keeper.torchrun.node_plan import NodePlan

MAX_MESSAGE_BYTES = 32 << 20  # of a message: stacks and collectives of all ranks of a node
MAX_HELLO_BYTES = 4096  # of the first one, which anybody may send

# --- from a node


@dataclass(frozen=True, slots=True)
class Versions:
    """Of what must be the same on all nodes."""

    rekindle: str
    torch: str
    python: str

    def __str__(self) -> str:
        return f"rekindle {self.rekindle}, torch {self.torch}, Python {self.python}"


@dataclass(frozen=True, slots=True)
class Hello:
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
    """Every second. ``sent``: seconds of the node's CLOCK_MONOTONIC.

    ``written``: number of the latest proof that the node can write the run directory; ``trouble``: why it cannot.
    """

    number: int
    sent: float
    written: int = 0
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """The head serves the store of the ranks at ``port``, or cannot, for the reason ``error``."""

    attempt: int
    port: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RecordWritten:
    """A record for the journal."""

    attempt: int
    type: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class UsageTaken:
    """What the node's ranks use."""

    attempt: int
    sample: UsageSample


@dataclass(frozen=True, slots=True)
class Proposal:
    """How the attempt ends, as far as this node sees."""

    attempt: int
    ending: Ending


@dataclass(frozen=True, slots=True)
class Stalled:
    """For ``seconds`` no rank of this node made progress, which is too long. ``stopped``: by a signal.

    ``shown``: seconds without progress that are to be shown, which are too long in ``left`` seconds.
    """

    attempt: int
    seconds: float | None
    stopped: bool = False
    shown: float | None = None
    left: float = 0.0


@dataclass(frozen=True, slots=True)
class RanksEnded:
    """After a failure: ``cause_known`` that is no consequence of another, or no rank of this node is left.

    ``by_sigterm``: nothing else has ended what has ended on this node.
    """

    attempt: int
    cause_known: bool
    by_sigterm: bool


@dataclass(frozen=True, slots=True)
class Observed:
    """The answer to ``Observe``."""

    attempt: int
    world: WorldObservation


@dataclass(frozen=True, slots=True)
class Quiet:
    """The ranks of this node have ended, or used up their time: the store is needed no more."""

    attempt: int


@dataclass(frozen=True, slots=True)
class NodeResult:
    """What is left of the attempt on this node; the fields are those of ``AttemptResult``."""

    attempt: int
    ranks: list[RankResult]
    agent_exit_code: int | None = None
    agent_signal: int | None = None
    agent_log_tail: str = ""
    kernel_log: list[str] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    survivors: list[int] = field(default_factory=list)
    disk_full: bool = False
    gpu_memory_held: int = 0
    resumed_from_step: int | None = None
    last_step: int | None = None
    snapshot_step: int | None = None
    memory_step: int | None = None
    saving_seconds: float | None = None
    commits_snapshots: bool = False
    own_checkpoint_saved: bool | None = None
    own_checkpoint_loaded: bool | None = None


@dataclass(frozen=True, slots=True)
class Terminated:
    """The node's keeper got SIGTERM, as every process does when the machine shuts down."""


# --- from the leading keeper


@dataclass(frozen=True, slots=True)
class Welcome:
    """The node is one of the job's. Its ranks must not outlive ``lease`` seconds without an answer to a heartbeat."""

    lease: float


@dataclass(frozen=True, slots=True)
class Heard:
    """The answer to ``Beat``."""

    number: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """For the head: begin to serve the store, to itself and the ``addresses`` of the other nodes; see ``NodePlan``."""

    attempt: int
    address: str
    addresses: list[str]
    secret: str


@dataclass(frozen=True, slots=True)
class Begin:
    """Start the ranks."""

    attempt: int
    plan: NodePlan
    environment: dict[str, str]
    warm: bool
    log_bytes: int | None = None
    hosts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AllRunning:
    """The ranks of all nodes run. ``others``: pids of those that write no metrics, on their own nodes."""

    attempt: int
    others: list[int]


@dataclass(frozen=True, slots=True)
class Discount:
    """The ranks could not reach each other for ``seconds``: that is no hang."""

    attempt: int
    seconds: float


class Look(StrEnum):
    """How to find out where the ranks are."""

    QUIET = "quiet"  # as they were sampled last, without a signal to them
    HANG = "hang"  # as they were sampled last, with their stacks
    FAILURE = "failure"  # now that one has failed


@dataclass(frozen=True, slots=True)
class Observe:
    """Where are your ranks?"""

    attempt: int
    look: Look


@dataclass(frozen=True, slots=True)
class End:
    """The attempt ends so on all nodes."""

    attempt: int
    ending: Ending


@dataclass(frozen=True, slots=True)
class Kill:
    """Nothing more is to be learned from the ranks that have not failed."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Finish:
    """All nodes are quiet: end every process, and report."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Request:
    """Of a user: stacks, or an injected fault."""

    message: ControlMessage


@dataclass(frozen=True, slots=True)
class Leave:
    """No further attempt follows here. ``is_over``: the job has ended, and needs its memory no more."""

    is_over: bool


Message = (
    Hello | Beat | Prepared | RecordWritten | UsageTaken | Proposal | Stalled | RanksEnded | Observed | Quiet
    | NodeResult | Terminated | Welcome | Heard | Prepare | Begin | AllRunning | Discount | Observe | End | Kill
    | Finish | Request | Leave
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
