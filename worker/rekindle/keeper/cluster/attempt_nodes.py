"""The nodes of an attempt: what their keepers report of it while it runs, and what becomes one result in the end."""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rekindle.contract.run_dir.attempt_samples import UsageSample
from rekindle.contract.run_dir.control_messages import ControlMessage, MessageType
from rekindle.keeper.attempt_result import AttemptResult, Ending, RankResult
from rekindle.keeper.cluster import messages
from rekindle.keeper.cluster.nodes import Node
from rekindle.keeper.diagnosis import ended_by_sigterm, final_ending, is_cascade, root_cause
from rekindle.keeper.hangs.culprit import WorldObservation
from rekindle.keeper.observers.usage_log import INTERVAL, append_sample

_SILENT = 5.0  # seconds without a heartbeat, after which the ranks of other nodes may wait for this one
_MAX_AGE = 3 * INTERVAL  # seconds, after which a sample says nothing about now


@dataclass(slots=True)
class Participant:
    """One node of an attempt, the ranks that run there, and what its keeper has reported."""

    keeper: Node
    number: int
    ranks: range
    prepared: messages.Prepared | None = None
    running: list[dict[str, int]] | None = None  # its ranks, as in the record RANKS_RUNNING
    proposal: Ending | None = None
    stalled: messages.NodeStalled | None = None
    observed: WorldObservation | None = None
    ended: messages.RanksEnded | None = None
    has_released_store: bool = False
    result: AttemptResult | None = None
    silent_for: float = 0.0  # seconds, the longest so far of the silence that lasts

    @property
    def is_lost(self) -> bool:
        return not self.keeper.is_alive

    def receive(self, message: messages.Message) -> None:
        """Note what the node has reported; what is no such message is ignored."""
        match message:
            case messages.Prepared():
                self.prepared = message
            case messages.Proposal():
                self.proposal = message.ending
            case messages.NodeStalled():
                self.stalled = message
            case messages.RanksEnded():
                self.ended = message
            case messages.Observed():
                self.observed = message.world
            case messages.StoreReleased():
                self.has_released_store = True
            case messages.NodeResult():
                self.result = replace(message.result, ranks={rank.rank: rank for rank in message.ranks})


class Participants:
    """The nodes of one attempt, in their order: the first serves the store."""

    def __init__(self, attempt: int, nodes: Sequence[Node], ranks: int) -> None:
        """``ranks``: on each node."""
        self._attempt, self._ranks = attempt, ranks
        self._all = [
            Participant(node, number, range(number * ranks, (number + 1) * ranks)) for number, node in enumerate(nodes)
        ]

    def __iter__(self) -> Iterator[Participant]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def first(self) -> Participant:
        return self._all[0]

    def send(self, message: messages.Message) -> None:
        """Send to every node."""
        for each in self._all:
            each.keeper.send(message)

    def pass_on(self, message: ControlMessage) -> None:
        """Send a user's request to the node that it concerns."""
        if message.attempt == self._attempt and message.type in (MessageType.STACK, MessageType.CHAOS):
            number = 0 if message.rank is None else message.rank // self._ranks
            if 0 <= number < len(self._all):
                self._all[number].keeper.send(messages.UserRequest(message))

    def any_lost(self) -> bool:
        return any(each.is_lost for each in self._all)

    def any_silent(self) -> bool:
        """Whether ranks may wait for a node that does not answer."""
        return any(each.keeper.silent_for() > _SILENT for each in self._all)

    def live_numbers(self) -> list[int]:
        """Numbers of the nodes whose ranks still run, as far as known."""
        return [each.number for each in self._all if not each.is_lost and each.proposal is None]

    def note_silence(self) -> None:
        """After a cut the ranks' own connections recover only later: they wait as long again, at most."""
        for each in self._all:
            silent = each.keeper.silent_for()
            if silent > _SILENT:
                each.silent_for = max(each.silent_for, silent)
            elif each.silent_for:
                self.send(messages.Discount(self._attempt, 2 * each.silent_for))
                for stalled in self._all:
                    stalled.stalled = None
                each.silent_for = 0.0


class ClusterUsage:
    """What the ranks of all nodes use, in one file: a line has the latest sample of every node.

    There is one per attempt, and only the coordinator writes it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._latest: dict[int, tuple[float, UsageSample]] = {}  # by node; with seconds of CLOCK_MONOTONIC
        self._written_at = 0.0

    def add(self, node: int, sample: UsageSample, nodes: Collection[int]) -> None:
        """Note a sample of ``node``; ``nodes`` are those from which samples are to be expected."""
        now = time.monotonic()
        self._latest[node] = now, sample
        if all(self._latest.get(each, (0.0,))[0] > self._written_at for each in nodes):
            self._written_at = now
            with suppress(OSError):
                append_sample(self._path, self._combined(now))

    def _combined(self, now: float) -> UsageSample:
        """GPUs are counted over all nodes, as the ranks are; all nodes have equally many."""
        samples = {node: each for node, (at, each) in self._latest.items() if now - at < _MAX_AGE}
        per_node = max((device.index + 1 for each in samples.values() for device in each.devices), default=0)
        ranks = [rank for node in sorted(samples) for rank in samples[node].ranks]
        devices = [
            replace(device, index=node * per_node + device.index)
            for node in sorted(samples)
            for device in samples[node].devices
        ]
        timeouts = [each.hang_after for each in samples.values() if each.hang_after is not None]
        waits = [each.without_progress for each in samples.values() if each.without_progress is not None]
        return UsageSample(time.time(), ranks, devices, max(timeouts, default=None), min(waits, default=None))


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The end of an attempt on one node: as its keeper reported it, or by the ranks' files where the node was lost."""

    host: str
    result: AttemptResult
    offset: float = 0.0  # see ``Node``
    lost: str | None = None  # how that was noticed
    lost_at: float = float("inf")  # seconds of CLOCK_MONOTONIC

    def ranks(self) -> list[RankResult]:
        """Its ranks in the coordinator's time: the clock of a node starts when the node does."""
        return [self._in_coordinators_time(rank) for rank in self.result.ranks.values()]

    def _in_coordinators_time(self, rank: RankResult) -> RankResult:
        error = rank.error
        if error is not None:
            error = replace(error, at_monotonic=error.at_monotonic + self.offset)
        ended_at = None if rank.ended_at is None else rank.ended_at + self.offset
        return replace(rank, error=error, ended_at=ended_at)


def merge(result: AttemptResult, reports: Sequence[NodeReport], stop: Ending | None) -> AttemptResult:
    """Complete ``result``, which has what the coordinator knows by itself; ``stop`` was requested meanwhile. Pure."""
    result.ranks = {rank.rank: rank for report in reports for rank in report.ranks()}
    found = [report.result for report in reports]
    if first := _first_failed([report.result for report in reports if report.lost is None], result.ranks.values()):
        result.agent_exit_code, result.agent_log_tail = first.agent_exit_code, first.agent_log_tail
    result.agent_signal = _first(each.agent_signal for each in found)
    result.kernel_log = [f"{report.host}: {line}" for report in reports for line in report.result.kernel_log]
    result.gpus = [gpu for each in found for gpu in each.gpus]
    result.survivors = [pid for each in found for pid in each.survivors]
    result.disk_full = any(each.disk_full for each in found)
    result.gpu_memory_held = sum(each.gpu_memory_held for each in found)
    for name in ("resumed_from_step", "last_step", "snapshot_step", "memory_step", "saving_seconds"):
        values = (getattr(each, name) for each in found)
        setattr(result, name, max((value for value in values if value is not None), default=None))
    result.commits_snapshots = any(each.commits_snapshots for each in found)
    result.own_checkpoint_saved = _first(each.own_checkpoint_saved for each in found)
    result.own_checkpoint_loaded = _first(each.own_checkpoint_loaded for each in found)
    result.lost_nodes = {report.host: report.lost for report in reports if report.lost is not None}
    result.ending = _ending(result, reports, stop)
    return result


def _first_failed(found: Sequence[AttemptResult], ranks: Iterable[RankResult]) -> AttemptResult | None:
    """The node of the rank that failed first; else one whose agent failed, or the first one."""
    cause = root_cause(ranks)
    for each in found:
        if cause is not None and cause.rank in each.ranks:
            return each
    return next((each for each in found if each.agent_exit_code), found[0] if found else None)


def _ending(result: AttemptResult, reports: Sequence[NodeReport], stop: Ending | None) -> Ending:
    """A lost node explains every lost connection and every SIGTERM, and no other failure that came before."""
    ending = final_ending(result.ending, stop, result.ranks.values(), result.world_size)
    lost_at = min((report.lost_at for report in reports if report.lost is not None), default=float("inf"))
    if lost_at == float("inf") or ending is Ending.DONE or (ending.is_stop and result.drained):
        return ending
    if ending is Ending.HANG:
        return ending
    cause, by_sigterm = root_cause(result.ranks.values()), ended_by_sigterm(result.ranks.values())
    is_own = cause is not None and not is_cascade(cause) and not by_sigterm and cause.failed_at < lost_at
    return Ending.RANK_FAILED if is_own else Ending.HOST_LOST


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)
