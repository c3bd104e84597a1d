"""An attempt on one of its nodes: as on one machine, but it ends only when, and as, the leading keeper says."""

from collections.abc import Callable, Iterable
from pathlib import Path

from rekindle.contract.run_dir.control import ControlMessage
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.usage import UsageSample
from rekindle.keeper.attempt.attempt import Attempt
from rekindle.keeper.attempt.plan import AttemptPlan
from rekindle.keeper.attempt_result import AttemptResult, Ending
from rekindle.keeper.cluster.messages import (
    AllRunning,
    Discount,
    End,
    Finish,
    Kill,
    Leave,
    Look,
    Message,
    NodeResult,
    Observe,
    Observed,
    Proposal,
    Quiet,
    RanksEnded,
    Request,
    Stalled,
    UsageTaken,
)
from rekindle.keeper.cluster.node_link import LeaderLostError, LinkJournal, NodeLink
from rekindle.keeper.diagnosis import has_timed_out, root_cause
from rekindle.keeper.event_loop import EventLoop
from rekindle.keeper.observers.usage import UsageLog
from rekindle.keeper.torchrun.agent_launcher import AgentLauncher

_INTERVAL = 1.0  # seconds


class NodeAttempt(Attempt):
    """Call ``run`` once, then ``report`` with its result."""

    def __init__(
        self, plan: AttemptPlan, run_dir: RunDir, link: NodeLink, events: EventLoop, launcher: AgentLauncher
    ) -> None:
        super().__init__(plan, run_dir, LinkJournal(link, plan.number), events, launcher)
        self._link, self._number = link, plan.number
        self._usage = UsageLog(self._dir.usage, plan.gpus, write=self._send_usage)
        self._agreed: Ending | None = None
        self._proposed: Ending | None = None
        self._observe: Observe | None = None
        self._discount = 0.0  # seconds
        self._may_kill = self._may_finish = False
        self._others: list[int] = []
        self._requests: list[ControlMessage] = []
        self._was_stalled = False
        link.attend(self._receive)

    def report(self, result: AttemptResult, gpu_memory_held: int) -> None:
        """The last message of this attempt."""
        names = set(NodeResult.__dataclass_fields__) - {"attempt", "ranks", "gpu_memory_held"}
        fields = {name: getattr(result, name) for name in names}
        ranks = list(result.ranks.values())
        self._link.send(NodeResult(self._number, ranks, gpu_memory_held=gpu_memory_held, **fields))

    # --- what the leading keeper says

    def receive(self, messages: Iterable[Message]) -> None:
        """Those that came together with the order to begin, such as one to end the attempt at once."""
        for message in messages:
            self._receive(message)

    def _receive(self, message: Message) -> None:
        """Called while events are awaited: it only notes what to do."""
        if isinstance(message, Leave):
            raise LeaderLostError("the leading keeper has left the job")
        if isinstance(message, Request):
            self._requests.append(message.message)
        if getattr(message, "attempt", None) != self._number:
            return
        match message:
            case End():
                self._agreed = message.ending
            case Kill():
                self._may_kill = True
            case Finish():
                self._may_finish = True
            case Observe():
                self._observe = message
            case Discount():
                self._discount += message.seconds
            case AllRunning():
                self._others = message.others

    def _handle_events(self, seconds: float) -> None:
        super()._handle_events(seconds)
        requests, self._requests = self._requests, []
        for request in requests:
            self._processes.handle_message(request)

    def _answer(self) -> None:
        """Where the ranks are, if that was asked."""
        if (asked := self._observe) is not None:
            self._observe = None
            match asked.look:
                case Look.QUIET:
                    seen = self._detector.look(self._ranks)
                case Look.HANG:
                    seen = self._detector.observe_hang(self._ranks, super()._handle_events)
                case Look.FAILURE:
                    seen = self._detector.observe_failure(self._ranks, super()._handle_events)
            self._link.send(Observed(self._number, seen))

    # --- while the ranks run

    def _ending(self) -> Ending | None:
        self._answer()
        if self._agreed is None and (proposed := super()._ending()) is not self._proposed and proposed is not None:
            self._proposed = proposed
            self._link.send(Proposal(self._number, proposed))
        return self._agreed

    def _find_hang(self) -> None:
        if self._discount:
            self._detector.discount(self._discount)
            self._discount = 0.0
        if self._detector.due_in() <= 0:
            stalled = self._detector.stalled(self._ranks)
            shown, left = self._detector.stall_times()
            is_stalled = stalled is not None or shown is not None
            if is_stalled or self._was_stalled:
                self._link.send(Stalled(self._number, stalled, self._detector.is_stopped, shown, left))
            self._was_stalled = is_stalled

    def _other_ranks(self) -> list[int]:
        return [*super()._other_ranks(), *self._others]

    def _send_usage(self, _: Path, sample: UsageSample) -> None:
        self._link.send(UsageTaken(self._number, sample))

    # --- at the end

    def _shut_down(self, ending: Ending) -> Ending:
        if ending is not Ending.DONE and not ending.is_stop:
            ending = self._await_kill(ending)
        if ending is Ending.DONE:
            self._shutdown.await_exit()
        elif ending.is_stop:
            self._shutdown.stop_ranks(ending)
        else:
            self._kill_ranks(ending)
        self._link.send(Quiet(self._number))
        self._wait_for(lambda: self._may_finish)
        return ending

    def _await_kill(self, ending: Ending) -> Ending:
        """Report what is known of the cause, until the leading keeper has heard enough; return what it then says."""
        reported: RanksEnded | None = None
        while not self._may_kill and self._agreed is ending:
            self._answer()
            known, by_sigterm = self._cause_is_known(), self._shutdown.ended_by_sigterm()
            if (known or self._ranks.all_ended()) and (now := RanksEnded(self._number, known, by_sigterm)) != reported:
                self._link.send(now)
                reported = now
            self._handle_events(_INTERVAL)
        return self._agreed or ending

    def _cause_is_known(self) -> bool:
        """Of a failure on this node that needs no look at the others."""
        cause = root_cause(self._ranks)
        needs_others = cause is not None and (self._detector.is_aborted_by_gloo(cause) or has_timed_out(cause))
        return self._ranks.root_cause_is_known() and not needs_others

    def _kill_ranks(self, ending: Ending) -> None:
        """All but the one that failed first, whose exit functions may still run."""
        cause = root_cause(self._ranks) if ending is Ending.RANK_FAILED else None
        if cause is None:
            self._ranks.kill_unfinished()
        else:
            self._shutdown.kill_others(cause)

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._answer()
            self._handle_events(_INTERVAL)

    def _final_ending(self, ending: Ending) -> Ending:
        """Of the nodes' endings the leading keeper makes one."""
        return ending
