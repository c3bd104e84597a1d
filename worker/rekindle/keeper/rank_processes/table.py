"""The ranks of the running attempt: which have started, which have ended and how, and how to signal exactly them."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rekindle.contract.processes import has_signal_handler
from rekindle.contract.rank_traces import crash_dump, crashed_stack
from rekindle.contract.run_dir.paths import AttemptDir
from rekindle.contract.run_dir.rank_records import STACK_SIGNAL
from rekindle.contract.safe_open import read_end
from rekindle.keeper.attempt_result import Crash, RankResult, read_markers, read_rank_result, stopped_by_torchrun
from rekindle.keeper.diagnosis import has_timed_out, is_cascade
from rekindle.keeper.error_kinds import watchdog_report
from rekindle.keeper.hangs.culprit import position_in_code
from rekindle.keeper.rank_processes.kernel_log import oom_evidence, oom_kills

_MAX_DUMP = 20_000  # characters
UNEXPLAINED_GRACE = 2.0  # seconds in which it becomes known how a rank has ended


class RankTable:
    """The ranks of this machine, by control messages, their own files and the ends of processes."""

    def __init__(
        self, attempt_dir: AttemptDir, world_size: int, first_rank: int = 0, agent_log: Path | None = None
    ) -> None:
        """This machine has ``world_size`` ranks, from ``first_rank`` on."""
        self._dir, self._numbers = attempt_dir, range(first_rank, first_rank + world_size)
        self._agent_log = agent_log or attempt_dir.agent_log
        self.ranks: dict[int, RankResult] = {}
        self._exits: dict[int, tuple[int | None, int | None, str | None]] = {}  # pid → exit code, signal, its reason
        self._oom_kills_before = oom_kills()

    def __iter__(self) -> Iterator[RankResult]:
        return iter(self.ranks.values())

    def add(self, rank: RankResult) -> None:
        self.ranks[rank.rank] = rank
        self._explain(rank)

    def missing(self) -> list[int]:
        """The ranks of this machine that have not started yet, as far as known."""
        return [number for number in self._numbers if number not in self.ranks]

    def refresh_all(self) -> None:
        """Read what every rank has left, for messages that did not arrive in time; its start message, too."""
        for rank in self:
            self.refresh(rank)
        for number in self.missing():
            if (found := read_rank_result(self._dir.rank(number), number)) is not None:
                self.add(found)

    def record_exit(
        self, pid: int, exit_code: int | None, signal_number: int | None, reason: str | None = None
    ) -> None:
        """The first report counts: torchrun's own comes later and has less detail. One of both numbers is None."""
        if (exit_code is None) == (signal_number is None):
            return  # sent by a script
        self._exits.setdefault(pid, (exit_code, signal_number, reason))
        for rank in self:
            if rank.pid == pid:
                self._explain(rank)

    def _explain(self, rank: RankResult) -> None:
        rank.exit_code, rank.signal, rank.signal_reason = self._exits.get(rank.pid, (None, None, None))
        if rank.signal == signal.SIGTERM:
            rank.stopped_by_torchrun = stopped_by_torchrun(self._agent_log, rank.pid)
        if rank.signal == signal.SIGABRT:
            report = watchdog_report(read_end(self._dir.rank(rank.rank).log("stderr")))
            rank.watchdog = None if report is None else report.line

    def record_status(self, pid: int, status: int) -> None:
        """``status`` as of ``os.waitpid``."""
        code = os.waitstatus_to_exitcode(status)
        self.record_exit(pid, *((code, None) if code >= 0 else (None, -code)))

    def record_death(self, pid: int) -> None:
        for rank in self:
            if rank.pid == pid and rank.ended_at is None:
                rank.ended_at = time.monotonic()
                self.refresh(rank)

    def refresh(self, rank: RankResult) -> None:
        """Read what the rank itself has left: a done marker, an error."""
        read_markers(self._dir.rank(rank.rank), rank)

    def complete(self) -> bool:
        return len(self.ranks) == len(self._numbers)

    def all(self, holds: Callable[[RankResult], bool]) -> bool:
        """True when every rank of this machine has started and ``holds`` is true of each."""
        return self.complete() and all(holds(rank) for rank in self)

    def all_ended(self) -> bool:
        """True when none of the ranks that have started is left."""
        return all(rank.ended_at is not None for rank in self)

    def all_explained(self) -> bool:
        """True when all have ended and it is known of each how."""
        return all(rank.ended_at is not None and rank.explained for rank in self)

    def failed(self) -> list[RankResult]:
        return [rank for rank in self if rank.failed]

    def failure_is_known(self) -> bool:
        """True once a rank has failed, whatever is still unknown about the end of others."""
        long_ago = time.monotonic() - UNEXPLAINED_GRACE
        return any(each.error is not None or each.explained or each.failed_at < long_ago for each in self.failed())

    def root_cause_is_known(self) -> bool:
        """True once a failure is known that is not the consequence of another's, or that a collective has timed out.

        The rank that the others have waited for must be looked at before torchrun stops it.
        """
        failed = [rank for rank in self.failed() if rank.error is not None or rank.explained]
        return any(not is_cascade(rank) or has_timed_out(rank) for rank in failed)

    def close(self, *, torchrun_succeeded: bool) -> None:
        """Everything has ended: fill in how. torchrun succeeds only when every rank's exit code is 0."""
        for rank in self:
            rank.ended_at = time.monotonic() if rank.ended_at is None else rank.ended_at
            if rank.killed and not rank.explained:
                rank.signal = signal.SIGKILL  # torchrun had reaped it and ended before it could report
            if torchrun_succeeded and not rank.explained:
                rank.exit_code = 0
            if rank.signal == signal.SIGKILL and not rank.killed:
                rank.oom = oom_evidence(rank.pid, self._oom_kills_before)
            self.refresh(rank)

    def kill_unfinished(self, *, spared: RankResult | None = None) -> None:
        """SIGKILL every rank that has neither ended nor finished; their ends are then no evidence of a cause."""
        for rank in self:
            if rank is not spared and rank.ended_at is None and not rank.finished:
                rank.killed = send_signal(rank, signal.SIGKILL) or rank.killed


def read_crash(stderr: Path, code: Path) -> Crash | None:
    """Why a rank has ended by a signal of its own; None where faulthandler has written nothing."""
    if (dump := crash_dump(read_end(stderr))) is None:
        return None
    position = position_in_code(crashed_stack(dump), code)
    return Crash(dump[:_MAX_DUMP]) if position is None else Crash(dump[:_MAX_DUMP], position.file, position.line)


def send_signal(rank: RankResult, number: int) -> bool:
    """Signal this rank's own process, not its group: a data-loader worker must outlive the save it feeds.

    False where the rank has ended, even if the keeper has not noticed yet.
    """
    return rank.ended_at is None and rank.identity.send_signal(number)


def request_stacks(rank: RankResult) -> None:
    """Nothing where no handler is installed any more, as after ``os.exec``: the signal would kill the rank."""
    if has_signal_handler(rank.pid, STACK_SIGNAL):
        send_signal(rank, STACK_SIGNAL)
