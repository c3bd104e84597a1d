"""The processes of an attempt on this machine: torchrun's agent and its ranks, from their start to their last end."""

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rekindle.contract.files import atomic_write
from rekindle.contract.processes import descendants, parent_of, process_state
from rekindle.contract.run_dir.control_messages import (
    CHAOS_SIGNAL,
    RANK_FAULTS,
    SELF_INFLICTED,
    ControlMessage,
    Fault,
    MessageType,
)
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.snapshot_dir import MANIFEST, SnapshotDir
from rekindle.keeper.attempt.plan import AttemptPlan
from rekindle.keeper.attempt_result import RankResult, read_rank_result
from rekindle.keeper.buffered_journal import AttemptJournal
from rekindle.keeper.diagnosis import signal_name
from rekindle.keeper.event_loop import EventLoop, Events
from rekindle.keeper.rank_processes.process_tree import kill_all, reap_children
from rekindle.keeper.rank_processes.table import RankTable, read_crash, request_stacks, send_signal
from rekindle.keeper.torchrun.agent_launcher import AgentLauncher

_REFRESH_INTERVAL = 1.0  # seconds
_FAULT_SIGNALS = {Fault.KILL: signal.SIGKILL, Fault.STOP: signal.SIGSTOP, Fault.CRASH: signal.SIGSEGV}


class AttemptProcesses:
    """The agent and its ranks, followed by events; journals when all ranks run and how each has ended.

    Call ``start`` first. ``ranks`` are those that have started, as far as known.
    """

    def __init__(
        self, plan: AttemptPlan, run_dir: RunDir, journal: AttemptJournal, events: EventLoop, launcher: AgentLauncher
    ) -> None:
        self._plan, self._run_dir, self._journal = plan, run_dir, journal
        self._events, self._launcher = events, launcher
        self._dir = run_dir.attempt(plan.number)
        self.agent_log = self._dir.agent_log_of(None if plan.node is None else plan.node.node)
        self.ranks = RankTable(self._dir, len(plan.ranks), plan.ranks.start, self.agent_log)
        self.running_since = float("inf")  # seconds of CLOCK_MONOTONIC
        self._agent: int | None = None
        self._agent_status: int | None = None
        self._journaled: set[int] = set()  # ranks whose end is in the journal
        self._is_stopping = False  # ranks get SIGTERM, also those that are started only now
        self._refreshed_at = time.monotonic()

    def start(self) -> None:
        """Start the agent, which starts the ranks."""
        start = self._launcher.start_warm if self._plan.spec.warm else self._launcher.start_cold
        self._agent = start(self._plan.number, self._plan.environment, self._plan.node)
        self._events.watch(self._agent)

    # --- the agent

    def agent_gone(self) -> bool:
        return self._agent_status is not None

    def agent_is_ending(self) -> bool:
        """True once the main thread has ended; the kernel reports a process's end when its last thread has."""
        return self._agent is not None and process_state(self._agent) == "Z"

    @property
    def agent_exit_code(self) -> int | None:
        status = self._agent_status
        return os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None

    @property
    def agent_signal(self) -> int | None:
        status = self._agent_status
        return os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None

    # --- what happens

    def handle(self, events: Events) -> None:
        """Handle the events of one wait."""
        for message in events.messages:
            if message.attempt == self._plan.number:
                self.handle_message(message)
        if events.ended:
            self.reap()
        for pid in events.ended:
            self.ranks.record_death(pid)
        for rank in self.ranks:
            if rank.finished and not rank.done:
                self._journal_exit(rank)  # nobody else can say that it has not failed

    def handle_message(self, message: ControlMessage) -> None:
        """Handle one message. A script may send messages too: what makes no sense is ignored."""
        rank = None if message.rank is None else self.ranks.ranks.get(message.rank)
        match message.type:
            case MessageType.RANK_STARTED if message.rank is not None and message.rank in self.ranks.missing():
                self._add_rank(message.rank)
            case MessageType.RANK_EXITED if message.pid is not None:
                self.ranks.record_exit(message.pid, message.exit_code, message.signal, message.reason)
            case MessageType.RESUMED if message.step is not None:
                self._record(RecordType.RESUMED, step=message.step)
            case MessageType.SNAPSHOT_SKIPPED if message.step is not None and message.reason is not None:
                self._record(RecordType.SNAPSHOT_SKIPPED, step=message.step, reason=message.reason)
            case MessageType.CHAOS if self._agent is not None and not self.agent_gone():
                inject_fault(message, self._run_dir, self._plan.number, self.ranks, self._agent, self._journal)
            case MessageType.STACK if rank is not None:
                request_stacks(rank)
            case MessageType.RANK_DONE | MessageType.RANK_FAILED if rank is not None:
                self.ranks.refresh(rank)

    def refresh_if_due(self) -> None:
        """Collect ended orphans, and ranks whose start message was lost in a flood of others, once a second."""
        if time.monotonic() < self._refreshed_at + _REFRESH_INTERVAL:
            return
        self._refreshed_at = time.monotonic()
        self.reap()
        for number in self.ranks.missing():
            self._add_rank(number)

    def reap(self) -> None:
        """Collect our own children that have ended: the agent, and ranks whose agent died before them.

        Also called again and again while the last processes are killed, which takes a while at worst: what is due
        meanwhile, such as the heartbeat of a node, is done here.
        """
        for pid, status in reap_children().items():
            if pid == self._agent:
                self._agent_status = status
            else:
                self.ranks.record_status(pid, status)
        self._events.run_due()

    def _add_rank(self, number: int) -> None:
        """Add a rank by its own file, which identifies its process: the agent's child, or one orphaned by its death."""
        rank = read_rank_result(self._dir.rank(number), number)
        if rank is None or rank.pid == self._agent:
            return
        if not (rank.identity.alive() and self._events.watch(rank.pid) and rank.identity.alive()):
            self._events.unwatch(rank.pid)
            self.ranks.add(rank)
            self.ranks.record_death(rank.pid)
        elif parent_of(rank.pid) in (self._agent, os.getpid()):
            self.ranks.add(rank)
            if self._is_stopping:
                send_signal(rank, signal.SIGTERM)
        else:
            self._events.unwatch(rank.pid)
        if self.ranks.complete():
            self.running_since = time.monotonic()
            ranks = [{"rank": rank.rank, "pid": rank.pid, "start_time": rank.start_time} for rank in self.ranks]
            self._record(RecordType.RANKS_RUNNING, ranks=ranks)

    # --- their end

    def terminate_ranks(self) -> None:
        """Send SIGTERM to all ranks, and to those that start only now."""
        self._is_stopping = True
        for rank in self.ranks:
            send_signal(rank, signal.SIGTERM)

    def kill_all(self) -> list[int]:
        """Kill all processes but the agent that waits for the next attempt; returns the pids that are still alive."""
        self.ranks.kill_unfinished()
        return kill_all(self._killable, self.reap)

    def _killable(self) -> list[int]:
        """Pids below the keeper but for the waiting agent and its store, which it may have started just now."""
        below, standby = descendants(os.getpid()), self._launcher.standby
        spared = set() if standby is None else {standby, *descendants(standby)}
        return [pid for pid in below if pid not in spared]

    def close(self) -> None:
        """Settle how each rank has ended, once all have and no event of them is left."""
        self._events.unwatch()
        self.ranks.close(torchrun_succeeded=self._agent_status == 0)
        for rank in self.ranks:
            if rank.signal is not None and not rank.killed:
                rank.crash = read_crash(self._dir.rank(rank.rank).log("stderr"), self._run_dir.code)

    def journal_exits(self) -> None:
        for rank in self.ranks:
            self._journal_exit(rank)

    def _journal_exit(self, rank: RankResult) -> None:
        """Journal the end of a rank, once."""
        if rank.rank not in self._journaled:
            self._journaled.add(rank.rank)
            name = None if rank.signal is None else signal_name(rank.signal)
            fields = {"exit_code": rank.exit_code, "signal": name, "killed": rank.killed}
            self._record(RecordType.RANK_EXITED, rank=rank.rank, **fields)

    def _record(self, record_type: RecordType, **fields: Any) -> None:
        self._journal.write_nowait(record_type, attempt=self._plan.number, **fields)


def inject_fault(
    message: ControlMessage, run_dir: RunDir, attempt: int, ranks: RankTable, agent: int, journal: AttemptJournal
) -> None:
    """Do what a chaos message requests; nothing where its target does not exist."""
    fault = message.fault
    rank = ranks.ranks.get(message.rank) if message.rank is not None and fault in RANK_FAULTS else None
    snapshot = latest_snapshot(run_dir.snapshots) if fault is Fault.CORRUPT_SNAPSHOT else None
    if fault is None or (rank is None and snapshot is None and fault not in (Fault.AGENT, Fault.KEEPER)):
        return
    number, step = None if rank is None else rank.rank, None if snapshot is None else int(snapshot.name)
    journal.write_nowait(RecordType.FAULT_INJECTED, attempt=attempt, fault=fault, rank=number, snapshot=step)
    if snapshot is not None:
        corrupt(snapshot)
    elif rank is None:
        os.kill(agent if fault is Fault.AGENT else os.getpid(), signal.SIGKILL)
    elif fault in SELF_INFLICTED:
        atomic_write(run_dir.attempt(attempt).rank(rank.rank).chaos, fault.encode(), durable=False)
        send_signal(rank, CHAOS_SIGNAL)
    else:
        send_signal(rank, _FAULT_SIGNALS[fault])


def latest_snapshot(snapshots: Path) -> Path | None:
    """The directory of the latest committed snapshot."""
    paths = map(SnapshotDir(snapshots).path, SnapshotDir(snapshots).steps())
    return next((path for path in paths if (path / MANIFEST).exists()), None)


def corrupt(snapshot: Path) -> None:
    """Flip one bit in the middle of the snapshot's largest file; nothing where it was deleted for a later one.

    The file is replaced by a copy first: a job that continues this one may have a hard link to it.
    """
    with suppress(OSError):
        target = max((path for path in snapshot.iterdir() if path.is_file()), key=lambda path: path.stat().st_size)
        copy = target.with_name(f".{target.name}.corrupt")
        shutil.copyfile(target, copy)
        copy.replace(target)
        with target.open("r+b") as file:
            file.seek(target.stat().st_size // 2)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))
