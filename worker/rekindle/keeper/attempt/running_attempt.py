"""One launch of torchrun: started, watched by events, ended without a process left behind."""

import time
from functools import partial
from pathlib import Path

from rekindle.contract.environment import ATTEMPT
from rekindle.contract.files import has_free_space
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import STREAMS, RunDir
from rekindle.contract.run_dir.rank_records import RankStatus
from rekindle.contract.safe_open import read_end
from rekindle.keeper.attempt.attempt_processes import AttemptProcesses
from rekindle.keeper.attempt.plan import AttemptPlan
from rekindle.keeper.attempt.shutdown import Shutdown
from rekindle.keeper.attempt_result import AttemptResult, Ending, Hang, read_steps
from rekindle.keeper.buffered_journal import AttemptJournal
from rekindle.keeper.diagnosis import final_ending
from rekindle.keeper.event_loop import EventLoop
from rekindle.keeper.hangs.detector import INTERVAL, HangDetector
from rekindle.keeper.observers.log_growth import TIMES_INTERVAL as LOG_TIMES_INTERVAL
from rekindle.keeper.observers.log_growth import LogLimit, LogTimesWriter
from rekindle.keeper.observers.script import ScriptObserver
from rekindle.keeper.observers.tensorboard import TensorBoardImport
from rekindle.keeper.observers.usage_log import UsageLog
from rekindle.keeper.rank_processes.kernel_log import driver_messages
from rekindle.keeper.torchrun.agent_launcher import AgentLauncher

LAUNCH_TIMEOUT = 600.0  # seconds for all ranks to start: a cold start imports torch from whatever disk it is on
STANDBY_DELAY = 30.0  # seconds after which the next ranks are started in standby, if these have not worked before
STARTUP_QUIET = 0.5  # seconds after the start of the ranks in which the keeper leaves them the processor
_AGENT_LOG_TAIL = 4000  # bytes of torchrun's output that are evidence


class RunningAttempt:
    """One attempt on this machine. Call ``run`` once."""

    def __init__(
        self, plan: AttemptPlan, run_dir: RunDir, journal: AttemptJournal, events: EventLoop, launcher: AgentLauncher
    ) -> None:
        self._plan, self._run_dir = plan, run_dir
        self._events, self._launcher = events, launcher
        self._record = partial(journal.write_nowait, attempt=plan.number)
        self._dir = run_dir.attempt(plan.number)
        self._processes = AttemptProcesses(plan, run_dir, journal, events, launcher)
        self._ranks = self._processes.ranks
        self._stop: Ending | None = None
        self._launched_at = time.monotonic()  # seconds of CLOCK_MONOTONIC
        self._observes = plan.node is None or plan.node.node == 0  # what concerns the job, and not one machine of it
        self._detector = HangDetector(
            self._dir,
            run_dir.code,
            plan.spec.hang_timeout,
            run_dir.pace,
            long_timeout=plan.long_timeout,
            is_alone=plan.world_size == 1,
            saves_pace=self._observes,
        )
        self._hang: Hang | None = None
        self._shutdown = Shutdown(
            plan, journal, launcher, self._processes, self._detector, self._handle_events, self._requested_stop
        )
        self._usage = UsageLog(self._dir.usage, plan.gpus)
        self._script: ScriptObserver | None = None
        self._log_limit = LogLimit(plan.log_bytes, self._logs)
        self._log_times = LogTimesWriter(self._dir, plan.ranks, None if plan.node is None else plan.node.node)
        self._tensorboard = TensorBoardImport(self._dir.scalars, (run_dir.code, run_dir.snapshots))

    def run(self) -> AttemptResult:
        """Start torchrun, wait for an ending, leave no process behind, and return what happened."""
        self._start()
        ending = self._watch_until_ending()
        ran = max(time.monotonic() - self._processes.running_since, 0.0)
        disk_full = ending is Ending.RANK_FAILED and not has_free_space(self._dir.root)
        agent_signal = self._shutdown.find_agent_signal()
        ending = self._shut_down(ending)
        survivors = self._shutdown.kill_everything()
        ending = self._final_ending(ending)
        self._processes.journal_exits()
        self._detector.save_pace()
        if self._observes:
            self._tensorboard.finish(self._other_ranks())
        result = AttemptResult(
            attempt=self._plan.number,
            world_size=self._plan.world_size,
            ending=ending,
            launch=self._plan.spec.launch,
            ranks=self._ranks.ranks,
            agent_exit_code=self._processes.agent_exit_code,
            agent_signal=agent_signal,
            agent_log_tail=read_end(self._processes.agent_log, _AGENT_LOG_TAIL),
            hang=self._hang,
            missing_peer=self._shutdown.missing_peer,
            kernel_log=driver_messages(self._launched_at, self._usage.bus_ids) if self._plan.gpus else [],
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
            spec, ranks = self._plan.spec, range(self._plan.world_size)
            self._script = ScriptObserver(self._run_dir, self._plan.number, spec, self._record, ranks)
        self._processes.start()

    def _watch_until_ending(self) -> Ending:
        while (ending := self._ending()) is None:
            self._handle_events(self._timeout())
            self._processes.refresh_if_due()
            if self._ranks.complete():
                self._find_hang()
                for event in self._detector.take_straggler_events():
                    self._record(RecordType.STRAGGLER, rank=event.rank, share=event.share)
                if self._detector.stall_changed and self._plan.node is None:
                    stall = self._detector.stall
                    self._record(RecordType.STALLED, **({"sentence": None} if stall is None else stall.fields()))
                if time.monotonic() > self._processes.running_since + STARTUP_QUIET:
                    if self._plan.spec.warm:
                        self._launcher.prefork(self._plan.number + 1, self._environment_of_next())
                    self._usage.sample_if_due(self._ranks, self._detector.take_activity)
                    if self._script is not None:
                        self._tensorboard.copy_if_due(self._other_ranks())
                        self._script.observe_if_due()
        return ending

    def _environment_of_next(self) -> dict[str, str] | None:
        """What the next attempt's ranks have from now on, if they are to wait in standby: once these do their work."""
        started = time.monotonic() > self._processes.running_since + STANDBY_DELAY or self._detector.works
        if not self._plan.spec.standby or self._plan.node is not None or not started:
            return None
        return {**self._plan.environment, ATTEMPT: str(self._plan.number + 1)}

    def _find_hang(self) -> None:
        self._hang = self._detector.poll(self._ranks, self._handle_events)

    def _timeout(self) -> float:
        """Seconds to wait for an event; while ranks are missing there is nothing to sample."""
        due_in = self._detector.due_in() if self._ranks.complete() else INTERVAL
        return due_in if self._plan.deadline is None else min(due_in, self._plan.deadline - time.monotonic())

    def _logs(self) -> list[Path]:
        streams = [rank_dir.log(stream) for rank_dir in map(self._dir.rank, self._ranks.ranks) for stream in STREAMS]
        return [self._processes.agent_log, *streams]

    def _other_ranks(self) -> list[int]:
        """The pids of all ranks but the first, which reports for all."""
        return [rank.pid for rank in self._ranks if rank.rank]

    def _ending(self) -> Ending | None:
        if self._ranks.all(lambda rank: rank.finished):
            return Ending.DONE
        if self._ranks.failure_is_known():
            return Ending.RANK_FAILED
        if self._processes.agent_gone():
            self._ranks.refresh_all()
            if self._ranks.all(lambda rank: rank.finished):
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
        """True where a stop loses nothing: a ``Run`` saves on request; another script has saved in this attempt."""
        if not self._ranks.complete():
            return False
        status = read_record(self._dir.rank(self._plan.ranks.start).status, RankStatus)
        uses_run = status is not None and status.snapshot_policy is not None
        return uses_run or (self._script is not None and self._script.has_saved)

    def _handle_events(self, seconds: float) -> None:
        """Handle the events of the next ``seconds``."""
        events = self._events.wait(min(seconds, LOG_TIMES_INTERVAL))
        self._log_times.record_if_due()
        self._log_limit.apply_if_due()
        self._processes.handle(events)
        self._stop = self._plan.requested_stop(events)

    def _shut_down(self, ending: Ending) -> Ending:
        """Give the processes the time that this ending leaves them, and return the ending."""
        return self._shutdown.stop_or_wait(ending)

    def _requested_stop(self) -> Ending | None:
        """The stop that was requested, unless it can wait, as growing can."""
        return None if self._stop is Ending.GROW else self._stop

    def _final_ending(self, ending: Ending) -> Ending:
        return final_ending(ending, self._requested_stop(), self._ranks.ranks.values(), len(self._plan.ranks))
