"""One attempt on several nodes, as the coordinator sees it: begun and ended on all, with one result in the end."""

import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial

from rekindle.contract.files import last_line_of
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import RankStatus
from rekindle.contract.run_dir.script_files import Observations
from rekindle.keeper.attempt.plan import AttemptPlan
from rekindle.keeper.attempt.shutdown import (
    EXIT_GRACE,
    FAILURE_GRACE,
    ROOT_CAUSE_GRACE,
    SIGTERM_GRACE,
    STOP_GRACE,
    wait_running,
)
from rekindle.keeper.attempt_result import AttemptResult, Culprit, Ending, Hang, read_rank_result, read_steps
from rekindle.keeper.buffered_journal import BufferedJournal, journal_time
from rekindle.keeper.cluster import messages
from rekindle.keeper.cluster.attempt_nodes import ClusterUsage, NodeReport, Participant, Participants, merge
from rekindle.keeper.cluster.nodes import Node, Nodes
from rekindle.keeper.event_loop import EventLoop
from rekindle.keeper.hangs.culprit import WorldObservation, find_culprit, find_missing_peer
from rekindle.keeper.hangs.detector import explain_hang
from rekindle.keeper.hangs.shown_stall import ShownStall
from rekindle.keeper.torchrun.node_plan import NodePlan

INTERVAL = 1.0  # seconds between two looks at what no message reports
PREPARE_TIMEOUT = 90.0  # seconds for the first node to serve the store
OBSERVE_TIMEOUT = 10.0  # seconds for all nodes to say where their ranks are
REPORT_TIMEOUT = 90.0  # seconds for a node to end every process and report
_LATE = 30.0  # seconds by which a node may be later than the time that it was given


class ClusterAttempt:
    """An attempt on the nodes of an allocation: call ``run`` once."""

    def __init__(
        self,
        plan: AttemptPlan,
        run_dir: RunDir,
        journal: BufferedJournal,
        events: EventLoop,
        allocation: Nodes,
        chosen: Sequence[Node],
    ) -> None:
        """``chosen``: nodes of the ``allocation``, one for each of the plan's ``hosts``, in the same order."""
        self._allocation = allocation
        self._plan, self._run_dir, self._events, self._number = plan, run_dir, events, plan.number
        self._write = partial(journal.write_nowait, attempt=plan.number)
        self._dir = run_dir.attempt(plan.number)
        self._secret = secrets.token_hex(32)
        self._per_node = plan.world_size // len(chosen)
        self._nodes = Participants(plan.number, chosen, self._per_node)
        self._usage = ClusterUsage(self._dir.usage)
        self._stop: Ending | None = None
        self._running_since = float("inf")  # seconds of CLOCK_MONOTONIC
        self._hang: Hang | None = None
        self._waits_longer = False  # what the ranks wait for may end
        self._shown = ShownStall(waits_for_limit=plan.spec.hang_timeout is not None)
        self._missing_peer: Culprit | None = None

    def run(self) -> AttemptResult:
        """Run until no process of it is left on any node that can be reached; others have ended by their lease."""
        for node in self._nodes:
            node.keeper.on_message = partial(self._receive, node)
        self._dir.ranks.mkdir(parents=True, exist_ok=True)
        error = self._prepare()
        has_begun = error is None and self._begin()
        ending = self._watch_until_ending() if error is None else Ending.AGENT_ENDED
        ran = max(time.monotonic() - self._running_since, 0.0)
        if ending.is_stop:
            self._record_stop(ending)
        if has_begun:
            ending = self._shut_down(ending)
            self._collect_results()
            self._give_up_nodes()
        result = AttemptResult(
            attempt=self._number,
            world_size=self._plan.world_size,
            ending=ending,
            launch=self._plan.spec.launch,
            hosts=self._plan.hosts,
            hang=self._hang,
            missing_peer=self._missing_peer,
            start_error=error,
            running_seconds=max(ran - (self._hang.seconds if self._hang is not None else 0.0), 0.0),
        )
        return merge(result, [self._report(node) for node in self._nodes], self._requested_stop())

    # --- beginning

    def _prepare(self) -> str | None:
        """Have the first node serve the store; return why it cannot, else None."""
        first = self._nodes.first
        addresses = [node.keeper.address for node in self._nodes]
        first.keeper.send(messages.Prepare(self._number, first.keeper.address, addresses, self._secret))
        self._wait(PREPARE_TIMEOUT, lambda: first.prepared is not None or self._is_to_end())
        if first.prepared is not None:
            return first.prepared.error
        return None if self._is_to_end() else f"{first.keeper.host} has not prepared the attempt in time"

    def _is_to_end(self) -> bool:
        return self._nodes.any_lost() or self._stop is not None

    def _begin(self) -> bool:
        """Have all nodes start their ranks; False where the attempt is to end, or a node was lost, before that."""
        first = self._nodes.first
        if first.prepared is None:
            return False
        for node in self._nodes:
            plan = NodePlan(
                node=node.number,
                nodes=len(self._nodes),
                ranks_per_node=self._per_node,
                address=node.keeper.address,
                store_host=first.keeper.address,
                store_port=first.prepared.port,
                addresses=[each.keeper.address for each in self._nodes],
                secret=self._secret,
            )
            begin = messages.Begin(self._number, plan, self._plan.environment, self._plan.log_bytes)
            node.keeper.send(begin)
        return True

    # --- watching

    def _watch_until_ending(self) -> Ending:
        while (ending := self._ending()) is None:
            left = INTERVAL if self._plan.deadline is None else self._plan.deadline - time.monotonic()
            self._handle_events(min(INTERVAL, left))
            self._nodes.note_silence()
            self._show_stall()
        return ending

    def _ending(self) -> Ending | None:
        proposals = [node.proposal for node in self._nodes]
        if all(each is Ending.DONE for each in proposals):
            return Ending.DONE
        failed = [each for each in proposals if each not in (None, Ending.DONE)]
        if failed:
            return failed[0]
        if self._nodes.any_lost():
            return Ending.HOST_LOST
        if self._find_hang():
            return Ending.HANG
        if self._plan.deadline is not None and time.monotonic() >= self._plan.deadline:
            return Ending.TIME_LIMIT
        if (stop := self._requested_stop()) is None and self._can_grow():
            return Ending.GROW
        return stop

    def _can_grow(self) -> bool:
        """More nodes are well, and a stop loses nothing: a ``Run`` saves when it is asked to, others have saved."""
        if len(self._allocation.answering()[: self._plan.spec.nodes]) <= len(self._nodes):
            return False
        status = read_record(self._dir.rank(0).status, RankStatus)
        if status is None or not status.reported_steps:
            return False
        observed = read_record(self._run_dir.observed, Observations) or Observations()
        return status.snapshot_policy is not None or bool(observed.saved_by(self._number))

    def _requested_stop(self) -> Ending | None:
        if self._stop is None and any(node.keeper.terminated for node in self._nodes):
            return Ending.SHUTDOWN
        return self._stop

    def _find_hang(self) -> bool:
        """Note a hang: nothing hangs while one node still makes progress, unless a rank is stopped."""
        if self._nodes.any_silent():
            return False
        if not (found := self._agreeing(lambda each: each.seconds is not None)):
            self._waits_longer = False
            return self._is_certain_hang()
        seconds = max(each.seconds or 0.0 for each in found)
        if self._waits_longer and seconds < self._plan.long_timeout:
            return False
        hang = self._explain(seconds)
        if hang.may_end and seconds < self._plan.long_timeout:
            self._waits_longer = True
            return False
        self._hang = hang
        return True

    def _is_certain_hang(self) -> bool:
        if (stall := self._shown.stall) is None or not self._shown.is_certain:
            return False
        hang = self._explain(journal_time() - stall.since)
        self._shown.confirm(hang.culprit)
        self._hang = hang if self._shown.is_certain else None
        return self._hang is not None

    def _explain(self, seconds: float) -> Hang:
        return explain_hang(seconds, self._observe(messages.Sampling.HANG), self._plan.spec.hang_timeout)

    def _agreeing(self, is_such: Callable[[messages.NodeStalled], bool]) -> list[messages.NodeStalled]:
        """The reports that are such, if all nodes with ranks have sent one, or one names a rank stopped by a signal."""
        reports = [node.stalled for node in self._nodes if node.proposal is not Ending.DONE]
        found = [each for each in reports if each is not None and is_such(each)]
        return found if len(found) == len(reports) or any(each.stopped for each in found) else []

    def _show_stall(self) -> None:
        """Journal a lack of progress that the nodes would show, long before it is a hang, and its end."""
        if not (shown := self._agreeing(lambda each: each.shown is not None)):
            if self._shown.end():
                self._write(RecordType.STALLED, sentence=None)
        elif self._shown.is_due():
            seen = self._observe(messages.Sampling.LATEST)
            culprit, seconds = find_culprit(seen.running, seen.finished), max(each.shown or 0.0 for each in shown)
            left = max(each.left for each in shown)
            if culprit.may_end and self._plan.spec.hang_timeout is None:
                left = max(left, self._plan.long_timeout - seconds)
            if self._shown.show(culprit, seconds, left) and (stall := self._shown.stall) is not None:
                self._write(RecordType.STALLED, **stall.fields())

    def _handle_events(self, seconds: float) -> None:
        events = self._events.wait(seconds)
        for message in events.messages:
            self._nodes.pass_on(message)
        self._stop = self._plan.requested_stop(events)

    def _wait(self, seconds: float, until: Callable[[], bool]) -> None:
        wait_running(self._handle_events, seconds, until)

    # --- what the nodes report

    def _receive(self, node: Participant, message: messages.Message) -> None:
        if not isinstance(message, messages.AttemptMessage) or message.attempt != self._number:
            return
        match message:
            case messages.RecordWritten():
                self._record(node, message)
            case messages.UsageTaken():
                self._usage.add(node.number, message.sample, self._nodes.live_numbers())
            case _:
                node.receive(message)

    def _record(self, node: Participant, message: messages.RecordWritten) -> None:
        if message.type == RecordType.RANKS_RUNNING:
            node.running = message.fields["ranks"]
            self._record_running()
        elif message.type in set(RecordType) - {RecordType.STOP_REQUESTED}:
            self._write(RecordType(message.type), **message.fields)

    def _record_running(self) -> None:
        found = [rank for node in self._nodes for rank in node.running or ()]
        if len(found) < self._plan.world_size:
            return
        self._running_since = time.monotonic()
        self._write(RecordType.RANKS_RUNNING, ranks=found)
        others = [rank["pid"] for rank in found if rank["rank"]]
        self._nodes.first.keeper.send(messages.AllRunning(self._number, others))

    def _observe(self, sampling: messages.Sampling) -> WorldObservation:
        for node in self._nodes:
            node.observed = None
        self._nodes.send(messages.Observe(self._number, sampling))
        self._wait(OBSERVE_TIMEOUT, lambda: all(node.observed is not None or node.is_lost for node in self._nodes))
        world = WorldObservation()
        for node in self._nodes:
            world = world if node.observed is None else world + node.observed
        return world

    # --- ending

    def _record_stop(self, ending: Ending) -> None:
        self._write(RecordType.STOP_REQUESTED, ending=ending)

    def _shut_down(self, ending: Ending) -> Ending:
        """End the ranks alike on all nodes, the store not before the last rank that may need it; see ``Shutdown``."""
        self._nodes.send(messages.End(self._number, ending))
        if not ending.is_stop and ending is not Ending.DONE:
            self._find_root_cause(ending)
            if self._ended_by_sigterm() and (stop := self._await_stop()) is not None:
                ending = stop
                self._record_stop(ending)
                self._nodes.send(messages.End(self._number, ending))
            else:
                self._nodes.send(messages.Kill(self._number))
        grace = STOP_GRACE.get(ending, max(EXIT_GRACE, FAILURE_GRACE)) + _LATE
        self._wait(grace, lambda: all(node.has_released_store or node.is_lost for node in self._nodes))
        return ending

    def _ended_by_sigterm(self) -> bool:
        """True where SIGTERM ended ranks of some node, and all others failed only because they lost the connection."""
        ended = [node.ended for node in self._nodes if node.ended is not None]
        return any(each.by_sigterm for each in ended) and all(each.by_sigterm or not each.cause_known for each in ended)

    def _await_stop(self) -> Ending | None:
        """Wait for the stop that has reached ranks before their keepers: when an allocation ends, all get SIGTERM."""
        self._wait(SIGTERM_GRACE, lambda: self._requested_stop() is not None or self._nodes.any_lost())
        return self._requested_stop()

    def _find_root_cause(self, ending: Ending) -> None:
        if ending is Ending.HANG or ending is Ending.HOST_LOST:
            return
        self._wait(ROOT_CAUSE_GRACE, self._cause_is_known)
        if not self._cause_is_known() and any(node.proposal is Ending.RANK_FAILED for node in self._nodes):
            seen = self._observe(messages.Sampling.FAILURE)
            self._missing_peer = find_missing_peer(seen.failed, seen.running, seen.finished) if seen.failed else None

    def _cause_is_known(self) -> bool:
        """True for a failure that is no consequence of another's, and for a lost node, which explains all of them."""
        return self._nodes.any_lost() or any(node.ended is not None and node.ended.cause_known for node in self._nodes)

    def _collect_results(self) -> None:
        """Wait for the result of every node, unless it is lost: before that its ranks may still run."""
        self._nodes.send(messages.Finish(self._number))
        deadline = time.monotonic() + REPORT_TIMEOUT
        while waiting := [node for node in self._nodes if node.result is None and not node.is_lost]:
            self._handle_events(INTERVAL)
            if time.monotonic() > deadline:
                for node in waiting:
                    node.keeper.lose("it did not report the end of its ranks")

    def _give_up_nodes(self) -> None:
        """Give up those on which no rank could be started, unless all are like that: then it is not the nodes."""
        ended = [(node.keeper, node.result) for node in self._nodes if node.proposal is Ending.AGENT_ENDED]
        bad = [(keeper, result) for keeper, result in ended if result is not None and not result.ranks]
        for keeper, result in bad if len(bad) < len(self._nodes) else []:
            last = last_line_of(result.agent_log_tail) or "torchrun ended"
            self._allocation.give_up(keeper, f"its ranks could not be started: {last}")

    def _report(self, node: Participant) -> NodeReport:
        keeper = node.keeper
        if node.result is not None and keeper.is_alive:
            return NodeReport(keeper.host, node.result, keeper.offset if keeper.offset < float("inf") else 0.0)
        return NodeReport(keeper.host, self._read_lost(node), lost=keeper.lost, lost_at=keeper.lost_at)

    def _read_lost(self, node: Participant) -> AttemptResult:
        """Read the ranks' own files; one of which nothing more is known has been killed by its keeper's lease."""
        result = AttemptResult(self._number, self._plan.world_size, Ending.HOST_LOST)
        for number in node.ranks:
            rank = read_rank_result(self._dir.rank(number), number)
            if rank is not None:
                rank.error, rank.killed, rank.ended_at = None, True, node.keeper.lost_at
                result.ranks[number] = rank
                self._write(RecordType.RANK_EXITED, rank=number, killed=not rank.finished)
        read_steps(result, self._dir, result.ranks)
        return result
