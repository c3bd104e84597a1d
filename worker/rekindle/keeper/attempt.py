"""One launch of torchrun: started, watched by events, ended without a process left behind."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rekindle.contract.files import has_free_space
from rekindle.contract.job import JobSpec
from rekindle.contract.processes import descendants, parent_of, process_state
from rekindle.contract.run_dir.control import ControlMessage, MessageType
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import STREAMS, RunDir
from rekindle.contract.run_dir.rank_records import RankStatus
from rekindle.keeper.attempt_result import (
    AttemptResult,
    Culprit,
    Ending,
    Hang,
    agent_log_tail,
    final_ending,
    read_rank_result,
    read_steps,
)
from rekindle.keeper.buffered_journal import AttemptJournal
from rekindle.keeper.diagnosis import is_cascade, root_cause, signal_name
from rekindle.keeper.event_loop import EventLoop, Events
from rekindle.keeper.fault_injection import inject_fault
from rekindle.keeper.hangs.detector import INTERVAL, HangDetector
from rekindle.keeper.observers.log_limit import LogLimit
from rekindle.keeper.observers.log_times import INTERVAL as LOG_TIMES_INTERVAL
from rekindle.keeper.observers.log_times import LogTimes
from rekindle.keeper.observers.script import ScriptObserver
from rekindle.keeper.observers.tensorboard_import import TensorBoardImport
from rekindle.keeper.observers.usage import UsageLog
from rekindle.keeper.ranks.kernel_log import driver_messages
from rekindle.keeper.ranks.processes import kill_all, reap_children
from rekindle.keeper.ranks.table import RankTable, request_stacks, send_signal
from rekindle.keeper.torchrun.launcher import AgentLauncher
from rekindle.keeper.torchrun.node_plan import NodePlan

LAUNCH_TIMEOUT = 600.0  # seconds for all ranks to start: a cold start imports torch from whatever disk it is on
STARTUP_QUIET = 0.5  # seconds after the start of the ranks in which the keeper leaves them the processor
ROOT_CAUSE_GRACE = 2.0  # seconds to wait for the record of the root cause when a cascade was observed first
FAILURE_GRACE = 5.0  # seconds for the failing rank's own exit functions; the others are killed meanwhile
EXIT_GRACE = 30.0  # seconds for ranks that are done to exit by themselves
STOP_GRACE = {
    Ending.DRAIN: 60.0,
    Ending.CANCEL: 10.0,
    Ending.TIME_LIMIT: 60.0,
    Ending.SHUTDOWN: 60.0,
    Ending.RESIZE: 60.0,
    Ending.GROW: 60.0,
}
"""Seconds from SIGTERM to SIGKILL, for the endings on request."""


@dataclass(frozen=True, slots=True)
class AttemptPlan:
    """What is decided about an attempt before it starts."""

    spec: JobSpec
    number: int
    world_size: int
    gpus: list[str]  # as in CUDA_VISIBLE_DEVICES
    environment: dict[str, str]  # of its ranks, in addition to the keeper's own
    warm: bool  # fork torchrun from the keeper
    deadline: float | None  # seconds of CLOCK_MONOTONIC: the job's time limit
    log_bytes: int | None  # that each log may take
    requested_stop: Callable[[Events], Ending | None]  # called after every wait
    node: NodePlan | None = None  # of a job on a cluster: which of the ranks run on this machine
    hosts: list[str] = field(default_factory=list)  # of a job on a cluster, in the order of its nodes

    @property
    def ranks(self) -> range:
        """Those of this machine."""
        first = 0 if self.node is None else self.node.first_rank()
        return range(first, first + (self.world_size if self.node is None else self.node.ranks_per_node))


class Attempt:
    """Call ``run`` once."""

    def __init__(
        self, plan: AttemptPlan, run_dir: RunDir, journal: AttemptJournal, events: EventLoop, launcher: AgentLauncher
    ) -> None:
        self._plan, self._run_dir, self._journal = plan, run_dir, journal
        self._events, self._launcher = events, launcher
        self._dir = run_dir.attempt(plan.number)
        node = None if plan.node is None else plan.node.node
        self._agent_log = self._dir.agent_log_of(node)
        self._ranks = RankTable(self._dir, len(plan.ranks), plan.ranks.start, self._agent_log)
        self._agent: int | None = None
        self._agent_status: int | None = None
        self._stop: Ending | None = None
        self._is_stopping = False  # ranks get SIGTERM, also those that are started only now
        self._launched_at = self._refreshed_at = time.monotonic()  # seconds of CLOCK_MONOTONIC
        self._running_since = float("inf")  # likewise
        self._observes = plan.node is None or plan.node.node == 0  # what concerns the job, and not one machine of it
        self._detector = HangDetector(
            self._dir,
            run_dir.code,
            plan.spec.hang_timeout,
            run_dir.pace,
            is_alone=plan.world_size == 1,
            saves_pace=self._observes,
        )
        self._hang: Hang | None = None
        self._deserter: Culprit | None = None
        self._usage = UsageLog(self._dir.usage, plan.gpus)
        self._script: ScriptObserver | None = None
        self._log_limit = LogLimit(plan.log_bytes, self._logs)
        self._log_times = LogTimes(self._dir, plan.ranks, node)
        self._tensorboard = TensorBoardImport(self._dir.scalars, (run_dir.code, run_dir.snapshots))

    def run(self) -> AttemptResult:
        """Start torchrun, wait for an ending, leave no process behind, and return what happened."""
        self._start()
        ending = self._watch_until_ending()
        ran = max(time.monotonic() - self._running_since, 0.0)
        disk_full = ending is Ending.RANK_FAILED and not has_free_space(self._dir.root)
        agent_signal = self._find_agent_signal()
        self._shut_down(ending)
        survivors = self._kill_everything()
        ending = self._final_ending(ending)
        self._journal_exits()
        self._detector.save_pace()
        if self._observes:
            self._tensorboard.finish(self._other_ranks())
        status = self._agent_status
        result = AttemptResult(
            attempt=self._plan.number,
            world_size=self._plan.world_size,
            ending=ending,
            launch=self._plan.spec.launch,
            ranks=self._ranks.ranks,
            agent_exit_code=os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
            agent_signal=agent_signal,
            agent_log_tail=agent_log_tail(self._agent_log),
            hang=self._hang,
            deserter=self._deserter,
            kernel_log=driver_messages(self._launched_at) if self._plan.gpus else [],
            gpus=self._plan.gpus,
            survivors=survivors,
            disk_full=disk_full,
            running_seconds=max(ran - (self._hang.seconds if self._hang is not None else 0.0), 0.0),
        )
        self._log_times.record()
        self._log_limit.apply()
        if self._script is not None:
            self._script.finish(result)
        read_steps(result, self._dir, self._plan.ranks)
        return result

    def _start(self) -> None:
        self._dir.ranks.mkdir(parents=True, exist_ok=True)
        if self._observes:
            self._script = ScriptObserver(self._run_dir, self._plan.number, self._plan.spec.watch, self._record)
        start = self._launcher.start_warm if self._plan.warm else self._launcher.start_cold
        self._agent = start(self._plan.number, self._plan.environment, self._plan.node)
        self._events.watch(self._agent)

    def _watch_until_ending(self) -> Ending:
        while (ending := self._ending()) is None:
            self._handle_events(self._timeout())
            self._refresh_ranks_if_due()
            if self._ranks.complete():
                self._find_hang()
                for event in self._detector.straggler_events:
                    self._record(RecordType.STRAGGLER, rank=event.rank, share=event.share)
                if time.monotonic() > self._running_since + STARTUP_QUIET:
                    if self._plan.warm:
                        self._launcher.prefork(self._plan.number + 1)
                    self._usage.sample_if_due(self._ranks, self._detector.take_activity)
                    if self._script is not None:
                        self._tensorboard.copy_if_due(self._other_ranks())
                        self._script.observe_if_due()
        return ending

    def _find_hang(self) -> None:
        self._hang = self._detector.poll(self._ranks, self._handle_events)

    def _refresh_ranks_if_due(self) -> None:
        """Once a second: orphans that have ended, and ranks whose start message was lost in a flood of others."""
        if time.monotonic() < self._refreshed_at + INTERVAL:
            return
        self._refreshed_at = time.monotonic()
        self._reap()
        for number in self._ranks.missing():
            self._add_rank(number)

    def _timeout(self) -> float:
        """Seconds to wait for an event; while ranks are missing there is nothing to sample."""
        due_in = self._detector.due_in() if self._ranks.complete() else INTERVAL
        return due_in if self._plan.deadline is None else min(due_in, self._plan.deadline - time.monotonic())

    def _logs(self) -> list[Path]:
        streams = [rank_dir.log(stream) for rank_dir in map(self._dir.rank, self._ranks.ranks) for stream in STREAMS]
        return [self._agent_log, *streams]

    def _other_ranks(self) -> list[int]:
        """The pids of all ranks but the first, which reports for all."""
        return [rank.pid for rank in self._ranks if rank.rank]

    def _ending(self) -> Ending | None:
        if self._ranks.all(lambda rank: rank.done):
            return Ending.DONE
        if self._ranks.failed():
            return Ending.RANK_FAILED
        if self._agent_gone():
            self._ranks.refresh_all()
            if self._ranks.all(lambda rank: rank.done):
                return Ending.DONE
            return Ending.RANK_FAILED if self._ranks.failed() else Ending.AGENT_ENDED
        if self._hang is not None:
            return Ending.HANG
        if not self._ranks.complete() and time.monotonic() >= self._launched_at + LAUNCH_TIMEOUT:
            return Ending.LAUNCH_STALLED
        if self._plan.deadline is not None and time.monotonic() >= self._plan.deadline:
            return Ending.TIME_LIMIT
        return None if self._stop is Ending.GROW and not self._can_grow() else self._stop

    def _can_grow(self) -> bool:
        """A stop loses nothing: a ``Run`` saves when it is asked to; another script has saved in this attempt."""
        if not self._ranks.complete():
            return False
        status = read_record(self._dir.rank(self._plan.ranks.start).status, RankStatus)
        uses_run = status is not None and status.snapshot_policy is not None
        return uses_run or (self._script is not None and self._script.has_saved)

    def _handle_events(self, seconds: float) -> None:
        """Those of at most ``seconds``."""
        events = self._events.wait(min(seconds, LOG_TIMES_INTERVAL))
        self._log_times.record_if_due()
        self._log_limit.apply_if_due()
        for message in events.messages:
            if message.attempt == self._plan.number:
                self._handle_message(message)
        if events.ended:
            self._reap()
        for pid in events.ended:
            self._ranks.record_death(pid)
        self._stop = self._plan.requested_stop(events)

    def _handle_message(self, message: ControlMessage) -> None:
        """A script may send messages too: what makes no sense is ignored."""
        rank = None if message.rank is None else self._ranks.ranks.get(message.rank)
        match message.type:
            case MessageType.RANK_STARTED if message.rank is not None and message.rank in self._ranks.missing():
                self._add_rank(message.rank)
            case MessageType.RANK_EXITED if message.pid is not None:
                self._ranks.record_exit(message.pid, message.exit_code, message.signal)
            case MessageType.RESUMED if message.step is not None:
                self._record(RecordType.RESUMED, step=message.step)
            case MessageType.SNAPSHOT_SKIPPED if message.step is not None and message.reason is not None:
                self._record(RecordType.SNAPSHOT_SKIPPED, step=message.step, reason=message.reason)
            case MessageType.CHAOS if self._agent is not None and not self._agent_gone():
                inject_fault(message, self._run_dir, self._plan.number, self._ranks, self._agent, self._journal)
            case MessageType.STACK if rank is not None:
                request_stacks(rank)
            case MessageType.RANK_DONE | MessageType.RANK_FAILED if rank is not None:
                self._ranks.refresh(rank)

    def _add_rank(self, number: int) -> None:
        """Its own file identifies its process; if that runs, it must be the agent's child, or orphaned by its death."""
        rank = read_rank_result(self._dir.rank(number), number)
        if rank is None or rank.pid == self._agent:
            return
        if not (rank.identity.alive() and self._events.watch(rank.pid) and rank.identity.alive()):
            self._events.unwatch(rank.pid)
            self._ranks.add(rank)
            self._ranks.record_death(rank.pid)
        elif parent_of(rank.pid) in (self._agent, os.getpid()):
            self._ranks.add(rank)
            if self._is_stopping:
                send_signal(rank, signal.SIGTERM)
        else:
            self._events.unwatch(rank.pid)
        if self._ranks.complete():
            self._running_since = time.monotonic()
            keys = ("rank", "local_rank", "pid", "start_time")
            ranks = [{key: getattr(rank, key) for key in keys} for rank in self._ranks]
            self._record(RecordType.RANKS_RUNNING, ranks=ranks)

    def _reap(self) -> None:
        """Collect our own children that have ended: the agent, and ranks whose agent died before them."""
        for pid, status in reap_children().items():
            if pid == self._agent:
                self._agent_status = status
            else:
                self._ranks.record_status(pid, status)

    def _agent_gone(self) -> bool:
        return self._agent_status is not None

    def _find_agent_signal(self) -> int | None:
        """The signal that ended the agent before the keeper sent any; its death takes the ranks along.

        They may be gone before it is: the kernel reports a process's end when its last thread has ended.
        """
        if self._agent is not None and process_state(self._agent) == "Z":
            self._wait(ROOT_CAUSE_GRACE, self._agent_gone)
        self._reap()
        status = self._agent_status
        return os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None

    def _wait(self, seconds: float, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while not until() and (left := deadline - time.monotonic()) > 0:
            self._handle_events(left)

    def _shut_down(self, ending: Ending) -> None:
        """Give the processes the time that this ending leaves them."""
        if ending is Ending.DONE:
            self._wait(EXIT_GRACE, self._agent_gone)
        elif ending in STOP_GRACE:
            self._stop_ranks(ending)
        elif ending is not Ending.HANG:
            self._await_root_cause()

    def _stop_ranks(self, ending: Ending) -> None:
        self._record(RecordType.STOP_REQUESTED, ending=ending)
        self._is_stopping = True
        if ending in (Ending.RESIZE, Ending.GROW) and self._plan.warm:
            self._launcher.prefork(self._plan.number + 1)  # for the new number of ranks
        for rank in self._ranks:
            send_signal(rank, signal.SIGTERM)
        self._wait(STOP_GRACE[ending], lambda: self._agent_gone() or self._ranks.all_ended())

    def _final_ending(self, ending: Ending) -> Ending:
        stop = None if self._stop is Ending.GROW else self._stop  # it was not carried out
        return final_ending(ending, stop, self._ranks.ranks.values(), len(self._plan.ranks))

    def _await_root_cause(self) -> None:
        """Kill the ranks that have not failed as soon as it is known which one failed first."""
        ranks = self._ranks
        self._wait(ROOT_CAUSE_GRACE, lambda: self._agent_gone() or ranks.root_cause_is_known() or ranks.all_ended())
        cause = root_cause(ranks)
        if cause is not None and (is_cascade(cause) or self._detector.is_aborted_by_gloo(cause)):
            self._deserter = self._detector.find_deserter(ranks, self._handle_events)
        ranks.kill_unfinished(spared=cause)
        self._wait(FAILURE_GRACE, lambda: self._agent_gone() or ranks.all_explained())

    def _kill_everything(self) -> list[int]:
        """Pids that are alive nevertheless. The agent that waits for the next attempt is spared."""
        self._ranks.kill_unfinished()
        survivors = kill_all(self._killable, self._reap)
        self._handle_events(0)
        self._events.unwatch()
        self._ranks.close(torchrun_succeeded=self._agent_status == 0)
        return survivors

    def _killable(self) -> list[int]:
        """Every process of the keeper but the waiting agent and its store, which it may have started just now."""
        below, standby = descendants(os.getpid()), self._launcher.standby
        spared = set() if standby is None else {standby, *descendants(standby)}
        return [pid for pid in below if pid not in spared]

    def _record(self, record_type: RecordType, **fields: Any) -> None:
        self._journal.write_nowait(record_type, attempt=self._plan.number, **fields)

    def _journal_exits(self) -> None:
        for rank in self._ranks:
            name = None if rank.signal is None else signal_name(rank.signal)
            self._record(
                RecordType.RANK_EXITED, rank=rank.rank, exit_code=rank.exit_code, signal=name, killed=rank.killed
            )
