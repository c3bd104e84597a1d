"""One launch of torchrun: started, watched by events, ended without a process left behind."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rekindle.contract.environment import attempt_environment
from rekindle.contract.failure_stats import FailureStats
from rekindle.contract.job import JobSpec
from rekindle.contract.processes import parent_of, process_state
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.accusation import Hang
from rekindle.keeper.agents import Agents
from rekindle.keeper.attempt_files import agent_log_tail, read_rank_result, read_steps
from rekindle.keeper.diagnosis import failed_by_itself, root_cause, signal_name
from rekindle.keeper.disk_room import has_room
from rekindle.keeper.facts import AttemptFacts, Ending
from rekindle.keeper.hang_doctor import LOOK_EVERY, HangDoctor
from rekindle.keeper.injection import Injector
from rekindle.keeper.patient_journal import PatientJournal
from rekindle.keeper.process_tree import descendants, end_all, reap
from rekindle.keeper.roster import Roster, ask_for_stacks, send
from rekindle.keeper.saved_files import SavedFiles
from rekindle.keeper.scalar_log import ScalarLog
from rekindle.keeper.usage_log import UsageLog
from rekindle.keeper.watch import Events, Watch

LAUNCH_LIMIT = 600.0  # seconds for all ranks to start: a cold start imports torch from whatever disk it lies on
SETTLED = 0.5  # seconds after the start of the ranks in which the keeper leaves them the processor
SETTLE = 2.0  # seconds to wait for the record of the root cause when a cascade was seen first
LAST_WORDS = 5.0  # seconds for the failing rank's own exit functions; the others are killed meanwhile
FAREWELL = 30.0  # seconds for ranks that are done to leave by themselves
GRACE = {Ending.DRAIN: 60.0, Ending.CANCEL: 10.0, Ending.TIME_LIMIT: 60.0}  # seconds from SIGTERM to SIGKILL
_STEPS = range(1 << 53)  # what a database and JavaScript can hold


@dataclass(frozen=True, slots=True)
class Plan:
    """What is decided about an attempt before it starts."""

    number: int
    generation: str
    world_size: int
    gpus: list[str]  # as in CUDA_VISIBLE_DEVICES
    snapshot_policy: str  # JSON of the spec's Cadence
    failures: FailureStats
    deadline: float | None  # seconds of CLOCK_MONOTONIC: the job's time limit
    stop_wanted: Callable[[Events], Ending | None]  # asked after every wait: has somebody asked to stop?


class Attempt:
    """Call ``run`` once."""

    def __init__(
        self, plan: Plan, spec: JobSpec, run_dir: RunDir, journal: PatientJournal, watch: Watch, agents: Agents
    ) -> None:
        self._plan, self._spec, self._run_dir, self._journal, self._watch = plan, spec, run_dir, journal, watch
        self._agents = agents
        self._dir = run_dir.attempt(plan.number)
        self._roster = Roster(self._dir, plan.world_size)
        self._agent: int | None = None
        self._agent_status: int | None = None
        self._stop: Ending | None = None
        self._launched_at = self._roll_called_at = time.monotonic()  # seconds of CLOCK_MONOTONIC
        self._running_since = float("inf")  # likewise
        self._doctor = HangDoctor(self._dir, run_dir.code, spec.hang_timeout)
        self._hang: Hang | None = None
        self._injector = Injector(run_dir, self._dir, journal)
        self._usage = UsageLog(self._dir.usage, plan.gpus)
        self._scalars = ScalarLog(self._dir.scalars, (run_dir.code, run_dir.snapshots))

    def run(self) -> AttemptFacts:
        """Start torchrun, wait for an ending, leave no process behind, and tell what happened."""
        saved = SavedFiles(self._run_dir)
        self._start()
        ending = self._watch_until_ending()
        disk_full = ending is Ending.RANK_FAILED and not has_room(self._dir.root)
        agent_signal = self._agent_signal()
        self._wind_up(ending)
        if self._roster.all(lambda rank: rank.done and not rank.drained):
            ending = Ending.DONE  # asked to stop, all came to their end first: nothing is left to do
        survivors = self._end_everything()
        if ending is Ending.RANK_FAILED and self._stop is not None and self._roster.stopped_with_us():
            ending = self._stop
        self._journal_exits()
        self._scalars.finish(self._other_ranks())
        facts = self._facts(ending)
        facts.agent_signal, facts.survivors, facts.hang = agent_signal, survivors, self._hang
        facts.disk_full = disk_full
        facts.files_changed = saved.changed(by_itself=failed_by_itself(facts))
        return facts

    def _start(self) -> None:
        self._dir.ranks.mkdir(parents=True, exist_ok=True)
        environment = attempt_environment(
            job_id=self._run_dir.job_id,
            run_dir=self._run_dir,
            attempt=self._plan.number,
            generation=self._plan.generation,
            snapshot_policy=self._plan.snapshot_policy,
            failures=self._plan.failures,
        )
        start = self._agents.start_warm if self._spec.warm else self._agents.start_cold
        self._agent = start(self._plan.number, environment)
        self._watch.add(self._agent)

    def _watch_until_ending(self) -> Ending:
        while (ending := self._ending()) is None:
            self._listen(self._patience())
            self._call_the_roll_if_due()
            if self._roster.complete():
                self._hang = self._doctor.examine(self._roster, self._listen)
                self._journal_stragglers()
                if time.monotonic() > self._running_since + SETTLED:
                    self._prepare_next()
                    self._usage.look_if_due(self._roster)
                    self._scalars.look_if_due(self._other_ranks())
        return ending

    def _call_the_roll_if_due(self) -> None:
        """Once a second: orphans that have ended, and ranks whose bell was drowned by others."""
        if time.monotonic() < self._roll_called_at + LOOK_EVERY:
            return
        self._roll_called_at = time.monotonic()
        self._note_statuses()
        for number in self._roster.missing():
            self._rank_started(number)

    def _patience(self) -> float:
        """Seconds to wait for something to happen; while ranks are missing there is nobody to be looked at."""
        look = self._doctor.due_in() if self._roster.complete() else LOOK_EVERY
        return look if self._plan.deadline is None else min(look, self._plan.deadline - time.monotonic())

    def _prepare_next(self) -> None:
        """Have the next attempt's agent ready."""
        if self._spec.warm:
            self._agents.prepare(self._plan.number + 1)

    def _other_ranks(self) -> list[int]:
        """The pids of all ranks but the first, which reports for all."""
        return [rank.pid for rank in self._roster if rank.rank]

    def _listen(self, seconds: float) -> None:
        self._take_in(self._watch.wait(seconds))

    def _ending(self) -> Ending | None:
        if self._roster.all(lambda rank: rank.done):
            return Ending.DONE
        if self._roster.failed():
            return Ending.RANK_FAILED
        if self._agent_gone():
            self._roster.add_unannounced()
            return Ending.DONE if self._roster.all(lambda rank: rank.done) else Ending.AGENT_ENDED
        if self._hang is not None:
            return Ending.HANG
        if not self._roster.complete() and time.monotonic() >= self._launched_at + LAUNCH_LIMIT:
            return Ending.LAUNCH_STALLED
        if self._plan.deadline is not None and time.monotonic() >= self._plan.deadline:
            return Ending.TIME_LIMIT
        return self._stop

    def _take_in(self, events: Events) -> None:
        for message in events.messages:
            if message.get("attempt") == self._plan.number:
                self._take_message(message)
        if events.ended:
            self._note_statuses()
        for pid in events.ended:
            self._roster.note_death(pid)
        self._stop = self._plan.stop_wanted(events)

    def _take_message(self, message: dict[str, Any]) -> None:
        """A script may ring too: what does not fit is passed over."""
        match message:
            case {"bell": "rank_started", "rank": int(r)} if r in self._roster.missing():
                self._rank_started(r)
            case {"bell": "rank_exited", "pid": int(pid), "exit_code": int(code), "signal": None} if 0 <= code < 256:
                self._roster.note_exit(pid, code, None)
            case {"bell": "rank_exited", "pid": int(pid), "exit_code": None, "signal": int(n)} if 0 < n < signal.NSIG:
                self._roster.note_exit(pid, None, n)
            case {"bell": "resumed", "step": int(step)} if step in _STEPS:
                self._journal.note(RecordType.RESUMED, attempt=self._plan.number, step=int(step))
            case {"bell": "snapshot_skipped", "step": int(step), "reason": str(reason)} if step in _STEPS:
                self._journal.note(
                    RecordType.SNAPSHOT_SKIPPED, attempt=self._plan.number, step=int(step), reason=reason
                )
            case {"bell": "chaos", "fault": str()} if self._agent is not None and not self._agent_gone():
                self._injector.inject(message, self._roster, self._agent)
            case {"bell": "stack", "rank": int(r)} if r in self._roster.ranks:
                ask_for_stacks(self._roster.ranks[r])
            case {"bell": "rank_done" | "rank_failed", "rank": int(r)} if r in self._roster.ranks:
                self._roster.read(self._roster.ranks[r])

    def _rank_started(self, number: int) -> None:
        """The rank's own file tells who it is; if it runs, it must be the agent's child, or orphaned by its death."""
        rank = read_rank_result(self._dir.rank(number), number)
        if rank is None or rank.pid == self._agent:
            return
        if not (rank.identity.alive() and self._watch.add(rank.pid) and rank.identity.alive()):
            self._watch.forget(rank.pid)
            self._roster.add(rank)
            self._roster.note_death(rank.pid)
        elif parent_of(rank.pid) in (self._agent, os.getpid()):
            self._roster.add(rank)
        else:
            self._watch.forget(rank.pid)
        if self._roster.complete():
            self._running_since = time.monotonic()
            keys = ("rank", "local_rank", "pid", "start_time")
            ranks = [{key: getattr(rank, key) for key in keys} for rank in self._roster]
            self._journal.note(RecordType.RANKS_RUNNING, attempt=self._plan.number, ranks=ranks)

    def _note_statuses(self) -> None:
        """Reap what is ours: the agent, and ranks whose agent died before them."""
        for pid, status in reap().items():
            if pid == self._agent:
                self._agent_status = status
            else:
                self._roster.note_status(pid, status)

    def _agent_gone(self) -> bool:
        return self._agent_status is not None

    def _agent_signal(self) -> int | None:
        """The signal that ended the agent before anything of ours was sent; its death takes the ranks along.

        They may be gone before it is: the kernel tells of a process's end when its last thread has ended.
        """
        if self._agent is not None and process_state(self._agent) == "Z":
            self._wait(SETTLE, self._agent_gone)
        self._note_statuses()
        status = self._agent_status
        return os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None

    def _wait(self, seconds: float, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while not until() and (left := deadline - time.monotonic()) > 0:
            self._listen(left)

    def _wind_up(self, ending: Ending) -> None:
        """Give the processes the time that this ending leaves them."""
        if ending is Ending.DONE:
            self._wait(FAREWELL, self._agent_gone)
        elif ending in GRACE:
            for rank in self._roster:
                send(rank, signal.SIGTERM)
            self._wait(GRACE[ending], lambda: self._agent_gone() or self._roster.all_ended())
        elif ending is not Ending.HANG:
            self._let_the_root_cause_speak()

    def _let_the_root_cause_speak(self) -> None:
        """Kill the ranks that have not failed as soon as it is clear which one failed first."""
        roster = self._roster
        self._wait(SETTLE, lambda: self._agent_gone() or roster.root_cause_is_clear() or roster.all_ended())
        cause = root_cause(self._facts(Ending.RANK_FAILED))
        for rank in roster:
            if rank is not cause:
                roster.kill(rank)
        self._wait(LAST_WORDS, lambda: self._agent_gone() or roster.all_explained())

    def _end_everything(self) -> list[int]:
        for rank in self._roster:
            self._roster.kill(rank)
        survivors = end_all(self._own_processes, self._note_statuses)
        self._listen(0)
        self._watch.forget_all()
        self._roster.close(torchrun_succeeded=self._agent_status == 0)
        return survivors

    def _own_processes(self) -> list[int]:
        return [pid for pid in descendants(os.getpid()) if pid != self._agents.standby]

    def _journal_stragglers(self) -> None:
        for mark in self._doctor.marks():
            self._journal.note(RecordType.STRAGGLER, attempt=self._plan.number, rank=mark.rank, share=mark.share)

    def _journal_exits(self) -> None:
        for rank in self._roster:
            self._journal.note(
                RecordType.RANK_EXITED,
                attempt=self._plan.number,
                rank=rank.rank,
                exit_code=rank.exit_code,
                signal=None if rank.signal is None else signal_name(rank.signal),
                killed=rank.killed,
            )

    def _facts(self, ending: Ending) -> AttemptFacts:
        status = self._agent_status
        facts = AttemptFacts(
            attempt=self._plan.number,
            world_size=self._plan.world_size,
            ending=ending,
            ranks=self._roster.ranks,
            agent_exit_code=os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
            agent_log_tail=agent_log_tail(self._dir),
        )
        read_steps(facts, self._dir)
        return facts
