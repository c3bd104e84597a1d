"""The end of an attempt: each process gets the time that the ending leaves it, then what is left is killed."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from rekindle.contract.run_dir.journal import RecordType
from rekindle.keeper.attempt.attempt_processes import AttemptProcesses
from rekindle.keeper.attempt.plan import AttemptPlan
from rekindle.keeper.attempt_result import Culprit, Ending, RankResult
from rekindle.keeper.buffered_journal import AttemptJournal
from rekindle.keeper.diagnosis import ended_by_sigterm, has_timed_out, is_cascade, root_cause
from rekindle.keeper.hangs.detector import HangDetector
from rekindle.keeper.torchrun.agent_launcher import AgentLauncher

ROOT_CAUSE_GRACE = 2.0  # seconds to wait for the record of the root cause when a cascade was observed first
FAILURE_GRACE = 5.0  # seconds for the failing rank's own exit functions; the others are killed meanwhile
SIGTERM_GRACE = 5.0  # seconds in which the keeper's own SIGTERM may follow the one that has ended a rank
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
_SLICE = 1.0  # seconds of a wait
_SYSTEMD = Path("/run/systemd/system")  # exists where systemd is the init system: see sd_booted(3)


class Shutdown:
    """Ends an attempt: ``find_agent_signal``, then ``stop_or_wait`` or its steps, then ``kill_everything``."""

    def __init__(
        self,
        plan: AttemptPlan,
        journal: AttemptJournal,
        launcher: AgentLauncher,
        processes: AttemptProcesses,
        detector: HangDetector,
        handle_events: Callable[[float], None],
        requested_stop: Callable[[], Ending | None],
    ) -> None:
        """``handle_events`` waits at most the given number of seconds for events."""
        self._plan, self._journal, self._launcher = plan, journal, launcher
        self._processes, self._ranks, self._detector = processes, processes.ranks, detector
        self._handle_events, self._requested_stop = handle_events, requested_stop
        self.missing_peer: Culprit | None = (
            None  # the rank that left, where all that failed have lost their connections
        )

    def find_agent_signal(self) -> int | None:
        """The signal that ended the agent before the keeper sent any; its ranks end with it, maybe before it does."""
        if self._processes.agent_is_ending():
            self._wait(ROOT_CAUSE_GRACE, self._processes.agent_gone)
        self._processes.reap()
        return self._processes.agent_signal

    def stop_or_wait(self, ending: Ending) -> Ending:
        """Stop the processes, or wait for them, as this ending requires; return the ending, or the stop behind it."""
        if ending is Ending.DONE:
            self.await_exit()
        elif ending.is_stop:
            self.stop_ranks(ending)
        elif ending is not Ending.HANG:
            self._wait(ROOT_CAUSE_GRACE, self._root_cause_is_known)
            if self.ended_by_sigterm() and (stop := self._await_stop()) is not None:
                self.stop_ranks(stop)
                return stop
            self._kill_after_failure()
        return ending

    def ended_by_sigterm(self) -> bool:
        """True where nothing but SIGTERM has ended the processes that have ended."""
        if not self._ranks.failed():
            return self._processes.agent_signal == signal.SIGTERM
        return ended_by_sigterm(self._ranks)

    def _await_stop(self) -> Ending | None:
        """Wait for a stop that has reached a rank before its keeper: a shutdown sends both SIGTERM, in either order."""
        self._wait(SIGTERM_GRACE, lambda: self._requested_stop() is not None)
        stop = self._requested_stop()
        return Ending.SHUTDOWN if stop is None and machine_is_stopping() else stop

    def await_exit(self) -> None:
        """Wait for ranks that have finished; torchrun waits for ever for the result of one that has left no marker."""
        are_marked = self._ranks.all(lambda rank: rank.done)
        is_over = self._processes.agent_gone
        self._wait(EXIT_GRACE, is_over if are_marked else lambda: is_over() or self._ranks.all_ended())

    def stop_ranks(self, ending: Ending) -> None:
        """Stop the ranks on request: they may save first."""
        self._journal.write_nowait(RecordType.STOP_REQUESTED, attempt=self._plan.number, ending=ending)
        if ending in (Ending.RESIZE, Ending.GROW) and self._plan.spec.warm:
            self._launcher.prefork(self._plan.number + 1)  # for the new number of ranks
        self._processes.terminate_ranks()
        self._wait(STOP_GRACE[ending], lambda: self._processes.agent_gone() or self._ranks.all_ended())

    def _kill_after_failure(self) -> None:
        """Kill the ranks that have not failed, now that it is known which one failed first."""
        cause = root_cause(self._ranks)
        if cause is not None and (is_cascade(cause) or self._detector.is_aborted_by_gloo(cause)):
            self.missing_peer = self._find_missing_peer()
        self.kill_others(cause)

    def _find_missing_peer(self) -> Culprit | None:
        """Find the rank that left; search again where the one found has timed out since: it waited, too."""
        found = self._detector.find_missing_peer(self._ranks, self._handle_events)
        timed_out = {rank.rank for rank in self._ranks.failed() if has_timed_out(rank)}
        if found is None or found.rank not in timed_out:
            return found
        return self._detector.find_missing_peer(self._ranks, self._handle_events)

    def _root_cause_is_known(self) -> bool:
        """True once the root cause is known, or nothing more will be."""
        return self._processes.agent_gone() or self._ranks.root_cause_is_known() or self._ranks.all_ended()

    def kill_others(self, cause: RankResult | None) -> None:
        """Kill all ranks but the one that failed first, whose exit functions may still run."""
        self._ranks.kill_unfinished(spared=cause)
        self._wait(FAILURE_GRACE, lambda: self._processes.agent_gone() or self._ranks.all_explained())

    def kill_everything(self) -> list[int]:
        """Kill all processes of the attempt; returns the pids that are still alive."""
        survivors = self._processes.kill_all()
        self._handle_events(0)
        self._processes.close()
        return survivors

    def _wait(self, seconds: float, until: Callable[[], bool]) -> None:
        wait_running(self._handle_events, seconds, until)


def wait_running(handle_events: Callable[[float], None], seconds: float, until: Callable[[], bool]) -> None:
    """Handle events until a condition holds; a pause of the keeper itself, as without a core, counts as a slice."""
    left = seconds
    while not until() and left > 0:
        began, part = time.monotonic(), min(left, _SLICE)
        handle_events(part)
        left -= min(time.monotonic() - began, part)


def machine_is_stopping(systemd: Path = _SYSTEMD) -> bool:
    """True while systemd shuts this machine down; False also where another init system runs."""
    if not systemd.is_dir():
        return False
    try:
        asked = subprocess.run(["systemctl", "is-system-running"], capture_output=True, timeout=2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.stdout.strip() == b"stopping"
