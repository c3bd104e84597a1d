"""One attempt on several nodes, as its leading keeper sees it: begun and ended on all, with one result in the end."""

import secrets
import time
from collections.abc import Callable, Sequence

from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import RankStatus
from rekindle.contract.run_dir.script_files import Observations
from rekindle.keeper.attempt.plan import AttemptPlan
from rekindle.keeper.attempt.shutdown import EXIT_GRACE, FAILURE_GRACE, ROOT_CAUSE_GRACE, SIGTERM_GRACE, STOP_GRACE
from rekindle.keeper.attempt_result import (
    AttemptResult,
    Culprit,
    Ending,
    Hang,
    RankResult,
    read_rank_result,
    read_steps,
)
from rekindle.keeper.buffered_journal import BufferedJournal
from rekindle.keeper.cluster.cluster_usage import ClusterUsage
from rekindle.keeper.cluster.merge import NodeReport, merge
from rekindle.keeper.cluster.messages import (
    AllRunning,
    Begin,
    End,
    Finish,
    Kill,
    Look,
    Message,
    Observe,
    Prepare,
    RecordWritten,
    Stalled,
    UsageTaken,
)
from rekindle.keeper.cluster.nodes import Node, Nodes
from rekindle.keeper.cluster.parts import Part, Parts
from rekindle.keeper.event_loop import EventLoop
from rekindle.keeper.hangs.culprit import WorldObservation, find_culprit, find_deserter
from rekindle.keeper.hangs.detector import explain_hang
from rekindle.keeper.hangs.shown_stall import ShownStall
from rekindle.keeper.torchrun.node_plan import NodePlan

INTERVAL = 1.0  # seconds between two looks at what no message reports
PREPARE_TIMEOUT = 90.0  # seconds for the head to serve the store
OBSERVE_TIMEOUT = 10.0  # seconds for all nodes to say where their ranks are
REPORT_TIMEOUT = 90.0  # seconds for a node to end every process and report
_LATE = 30.0  # seconds by which a node may be later than the time that it was given


class ClusterAttempt:
    """Call ``run`` once."""

    def __init__(
        self,
        plan: AttemptPlan,
        run_dir: RunDir,
        journal: BufferedJournal,
        events: EventLoop,
        nodes: Nodes,
        chosen: Sequence[Node],
    ) -> None:
        """``chosen``: of ``nodes`` one for each of the plan's ``hosts``, in the same order."""
        self._nodes = nodes
        self._plan, self._run_dir, self._journal, self._events = plan, run_dir, journal, events
        self._dir = run_dir.attempt(plan.number)
        self._secret = secrets.token_hex(32)
        self._per_node = plan.world_size // len(chosen)
        self._parts = Parts(plan.number, chosen, self._per_node)
        self._usage = ClusterUsage(self._dir.usage)
        self._stop: Ending | None = None
        self._running_since = float("inf")  # seconds of CLOCK_MONOTONIC
        self._hang: Hang | None = None
        self._waits_longer = False  # what the ranks wait for may end
        self._shown = ShownStall()
        self._deserter: Culprit | None = None

    def run(self) -> AttemptResult:
        """Until no process of the attempt is left on any node that can be reached; the others' have ended by lease."""
        for part in self._parts:
            part.node.on_message = self._receiver(part)
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
            attempt=self._plan.number,
            world_size=self._plan.world_size,
            ending=ending,
            launch=self._plan.spec.launch,
            hosts=self._plan.hosts,
            hang=self._hang,
            deserter=self._deserter,
            start_error=error,
            running_seconds=max(ran - (self._hang.seconds if self._hang is not None else 0.0), 0.0),
        )
        reports = [self._report(part) for part in self._parts]
        self._read_lost(result, reports)
        return merge(result, reports, self._requested_stop())

    # --- beginning

    def _prepare(self) -> str | None:
        """Have the head serve the store; why it cannot, else None."""
        head = self._parts.head
        addresses = [part.node.address for part in self._parts]
        head.node.send(Prepare(self._plan.number, head.node.address, addresses, self._secret))
        self._wait(PREPARE_TIMEOUT, lambda: head.prepared is not None or self._is_to_end())
        if head.prepared is not None:
            return head.prepared.error
        return None if self._is_to_end() else f"{head.node.host} has not prepared the attempt in time"

    def _is_to_end(self) -> bool:
        return self._parts.any_lost() or self._stop is not None

    def _begin(self) -> bool:
        """False where the attempt is to end, or a node was lost, before the store is served: no node has begun then."""
        head = self._parts.head
        if head.prepared is None:
            return False
        for part in self._parts:
            plan = NodePlan(
                node=part.number,
                nodes=len(self._parts),
                ranks_per_node=self._per_node,
                address=part.node.address,
                store_host=head.node.address,
                store_port=head.prepared.port,
                addresses=[each.node.address for each in self._parts],
                secret=self._secret,
            )
            begin = Begin(
                self._plan.number, plan, self._plan.environment, self._plan.warm, self._plan.log_bytes, self._plan.hosts
            )
            part.node.send(begin)
        return True

    # --- watching

    def _watch_until_ending(self) -> Ending:
        while (ending := self._ending()) is None:
            left = INTERVAL if self._plan.deadline is None else self._plan.deadline - time.monotonic()
            self._handle_events(min(INTERVAL, left))
            self._parts.note_silence()
            self._show_stall()
        return ending

    def _ending(self) -> Ending | None:
        proposals = [part.proposal for part in self._parts]
        if all(each is Ending.DONE for each in proposals):
            return Ending.DONE
        failed = [each for each in proposals if each not in (None, Ending.DONE)]
        if failed:
            return failed[0]
        if self._parts.any_lost():
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
        if len(self._nodes.answering()[: self._plan.spec.nodes]) <= len(self._parts):
            return False
        status = read_record(self._dir.rank(0).status, RankStatus)
        if status is None or not status.reported_steps:
            return False
        observed = read_record(self._run_dir.observed, Observations) or Observations()
        return status.snapshot_policy is not None or bool(observed.saved_by(self._plan.number))

    def _requested_stop(self) -> Ending | None:
        if self._stop is None and any(part.node.terminated for part in self._parts):
            return Ending.SHUTDOWN
        return self._stop

    def _find_hang(self) -> bool:
        """Progress is the world's: nothing hangs while one node still makes some, unless a rank is stopped."""
        if self._parts.any_silent():
            return False
        if not (found := self._agreeing(lambda each: each.seconds is not None)):
            self._waits_longer = False
            return False
        seconds = max(each.seconds or 0.0 for each in found)
        if self._waits_longer and seconds < self._plan.long_timeout:
            return False
        hang = explain_hang(seconds, self._observe(Look.HANG), self._plan.spec.hang_timeout)
        if hang.may_end and seconds < self._plan.long_timeout:
            self._waits_longer = True
            return False
        self._hang = hang
        return True

    def _agreeing(self, is_such: Callable[[Stalled], bool]) -> list[Stalled]:
        """Such reports, if all nodes whose ranks run have sent one, or one of a rank that is stopped by a signal."""
        reports = [part.stalled for part in self._parts if part.proposal is not Ending.DONE]
        found = [each for each in reports if each is not None and is_such(each)]
        return found if len(found) == len(reports) or any(each.stopped for each in found) else []

    def _show_stall(self) -> None:
        """Long before it is a hang: a lack of progress that the nodes would show, and its end."""
        if not (shown := self._agreeing(lambda each: each.shown is not None)):
            if self._shown.end():
                self._journal.write_nowait(RecordType.STALLED, attempt=self._plan.number, sentence=None)
        elif self._shown.is_due():
            seen = self._observe(Look.QUIET)
            culprit, seconds = find_culprit(seen.running, seen.finished), max(each.shown or 0.0 for each in shown)
            left = max(each.left for each in shown)
            if culprit.may_end and self._plan.spec.hang_timeout is None:
                left = max(left, self._plan.long_timeout - seconds)
            if self._shown.show(culprit, seconds, left) and (stall := self._shown.stall) is not None:
                self._journal.write_nowait(RecordType.STALLED, attempt=self._plan.number, **stall.fields())

    def _handle_events(self, seconds: float) -> None:
        events = self._events.wait(seconds)
        for message in events.messages:
            self._parts.pass_on(message)
        self._stop = self._plan.requested_stop(events)

    def _wait(self, seconds: float, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while not until() and (left := deadline - time.monotonic()) > 0:
            self._handle_events(min(left, INTERVAL))

    # --- what the nodes report

    def _receiver(self, part: Part) -> Callable[[Message], None]:
        return lambda message: self._receive(part, message)

    def _receive(self, part: Part, message: Message) -> None:
        if getattr(message, "attempt", None) != self._plan.number:
            return  # of the attempt before, or of none
        match message:
            case RecordWritten():
                self._record(part, message)
            case UsageTaken():
                self._usage.add(part.number, message.sample, self._parts.live_numbers())
            case _:
                part.receive(message)

    def _record(self, part: Part, message: RecordWritten) -> None:
        if message.type == RecordType.RANKS_RUNNING:
            part.running = message.fields["ranks"]
            self._record_running()
        elif message.type in set(RecordType) - {RecordType.STOP_REQUESTED}:
            self._journal.write_nowait(RecordType(message.type), attempt=self._plan.number, **message.fields)

    def _record_running(self) -> None:
        found = [rank for part in self._parts for rank in part.running or ()]
        if len(found) < self._plan.world_size:
            return
        self._running_since = time.monotonic()
        self._journal.write_nowait(RecordType.RANKS_RUNNING, attempt=self._plan.number, ranks=found)
        others = [rank["pid"] for rank in found if rank["rank"]]
        self._parts.head.node.send(AllRunning(self._plan.number, others))

    def _observe(self, look: Look) -> WorldObservation:
        for part in self._parts:
            part.observed = None
        self._parts.send(Observe(self._plan.number, look))
        self._wait(OBSERVE_TIMEOUT, lambda: all(part.observed is not None or part.is_lost for part in self._parts))
        world = WorldObservation()
        for part in self._parts:
            world = world if part.observed is None else world + part.observed
        return world

    # --- ending

    def _record_stop(self, ending: Ending) -> None:
        self._journal.write_nowait(RecordType.STOP_REQUESTED, attempt=self._plan.number, ending=ending)

    def _shut_down(self, ending: Ending) -> Ending:
        """The same on all nodes, and no store ends before the last rank that may need it; as in ``Shutdown``."""
        self._parts.send(End(self._plan.number, ending))
        if not ending.is_stop and ending is not Ending.DONE:
            self._find_root_cause(ending)
            if self._ended_by_sigterm() and (stop := self._await_stop()) is not None:
                ending = stop
                self._record_stop(ending)
                self._parts.send(End(self._plan.number, ending))
            else:
                self._parts.send(Kill(self._plan.number))
        grace = STOP_GRACE.get(ending, max(EXIT_GRACE, FAILURE_GRACE)) + _LATE
        self._wait(grace, lambda: all(part.is_quiet or part.is_lost for part in self._parts))
        return ending

    def _ended_by_sigterm(self) -> bool:
        """True where SIGTERM has ended processes of some node, and those of the others only have lost them."""
        ended = [part.ended for part in self._parts if part.ended is not None]
        return any(each.by_sigterm for each in ended) and all(each.by_sigterm or not each.cause_known for each in ended)

    def _await_stop(self) -> Ending | None:
        """The stop that has reached ranks before their keepers: when an allocation ends, all get SIGTERM."""
        self._wait(SIGTERM_GRACE, lambda: self._requested_stop() is not None or self._parts.any_lost())
        return self._requested_stop()

    def _find_root_cause(self, ending: Ending) -> None:
        if ending is Ending.HANG or ending is Ending.HOST_LOST:
            return
        self._wait(ROOT_CAUSE_GRACE, self._cause_is_known)
        if not self._cause_is_known() and any(part.proposal is Ending.RANK_FAILED for part in self._parts):
            seen = self._observe(Look.FAILURE)
            self._deserter = find_deserter(seen.failed, seen.running, seen.finished) if seen.failed else None

    def _cause_is_known(self) -> bool:
        """A failure that is no consequence of another's, or a lost node, which explains all of them."""
        return self._parts.any_lost() or any(part.ended is not None and part.ended.cause_known for part in self._parts)

    def _collect_results(self) -> None:
        """Of every node, unless it is lost: before that its ranks may still run."""
        self._parts.send(Finish(self._plan.number))
        deadline = time.monotonic() + REPORT_TIMEOUT
        while waiting := [part for part in self._parts if part.result is None and not part.is_lost]:
            self._handle_events(INTERVAL)
            if time.monotonic() > deadline:
                for part in waiting:
                    part.node.lost, part.node.lost_at = "it did not report the end of its ranks", time.monotonic()
                    part.node.channel.close()

    def _give_up_nodes(self) -> None:
        """Those on which no rank could be started, unless all nodes are like that: then it is not the nodes."""
        bad = [part for part in self._parts if part.proposal is Ending.AGENT_ENDED and part.result is not None]
        bad = [part for part in bad if part.result is not None and not part.result.ranks]
        for part in bad if len(bad) < len(self._parts) else []:
            log = "" if part.result is None else part.result.agent_log_tail
            last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "torchrun ended")
            self._nodes.give_up(part.node, f"its ranks could not be started: {last}")

    def _report(self, part: Part) -> NodeReport:
        node = part.node
        if part.result is not None and node.is_alive:
            return NodeReport(node.host, part.result, node.offset if node.offset < float("inf") else 0.0)
        return NodeReport(node.host, None, 0.0, node.lost, node.lost_at, self._lost_ranks(part))

    def _lost_ranks(self, part: Part) -> list[RankResult]:
        """By their own files; a rank of which nothing more is known has been killed by its keeper's lease."""
        ranks = []
        for number in part.numbers:
            rank = read_rank_result(self._dir.rank(number), number)
            if rank is not None:
                rank.error, rank.killed, rank.ended_at = None, True, part.node.lost_at
                ranks.append(rank)
                self._journal.write_nowait(
                    RecordType.RANK_EXITED, attempt=self._plan.number, rank=number, killed=not rank.finished
                )
        return ranks

    def _read_lost(self, result: AttemptResult, reports: Sequence[NodeReport]) -> None:
        lost = [rank.rank for report in reports if report.result is None for rank in report.lost_ranks]
        read_steps(result, self._dir, lost)
