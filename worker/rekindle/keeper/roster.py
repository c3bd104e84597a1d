"""The ranks of the running attempt: who they are, which have ended and how, and how to signal exactly them."""

import os
import signal
import time
from collections.abc import Callable, Iterator

from rekindle.contract.processes import has_signal_handler
from rekindle.contract.run_dir.paths import AttemptDir
from rekindle.contract.run_dir.rank_records import STACK_SIGNAL
from rekindle.keeper.attempt_files import read_markers, read_rank_result, stopped_by_torchrun
from rekindle.keeper.diagnosis import is_cascade
from rekindle.keeper.facts import RankFacts
from rekindle.keeper.oom_killer import oom_evidence, oom_kills
from rekindle.keeper.process_tree import send_signal


class Roster:
    """Filled by what is rung on the bell and by the ends of processes."""

    def __init__(self, attempt_dir: AttemptDir, world_size: int) -> None:
        self._dir, self._world_size = attempt_dir, world_size
        self.ranks: dict[int, RankFacts] = {}
        self._exits: dict[int, tuple[int | None, int | None]] = {}  # pid → exit code, signal
        self._oom_kills_before = oom_kills()

    def __iter__(self) -> Iterator[RankFacts]:
        return iter(self.ranks.values())

    def add(self, rank: RankFacts) -> None:
        self.ranks[rank.rank] = rank
        self._explain(rank)

    def missing(self) -> list[int]:
        """The ranks of the world that nobody has told of yet."""
        return [number for number in range(self._world_size) if number not in self.ranks]

    def add_unannounced(self) -> None:
        """Take in ranks that have left their files but were not heard on the bell."""
        for number in self.missing():
            if (rank := read_rank_result(self._dir.rank(number), number)) is not None:
                self.add(rank)

    def note_exit(self, pid: int, exit_code: int | None, signal_number: int | None) -> None:
        """The first report counts: torchrun's own comes later and knows less."""
        self._exits.setdefault(pid, (exit_code, signal_number))
        for rank in self:
            if rank.pid == pid:
                self._explain(rank)

    def _explain(self, rank: RankFacts) -> None:
        rank.exit_code, rank.signal = self._exits.get(rank.pid, (None, None))
        if rank.signal == signal.SIGTERM:
            rank.stopped_by_torchrun = stopped_by_torchrun(self._dir, rank.pid)

    def note_status(self, pid: int, status: int) -> None:
        """``status`` as of ``os.waitpid``."""
        if os.WIFSIGNALED(status):
            self.note_exit(pid, None, os.WTERMSIG(status))
        else:
            self.note_exit(pid, os.WEXITSTATUS(status), None)

    def note_death(self, pid: int) -> None:
        for rank in self:
            if rank.pid == pid and rank.ended_at is None:
                rank.ended_at = time.monotonic()
                self.read(rank)

    def read(self, rank: RankFacts) -> None:
        """Take in what the rank itself has left: a done marker, an error."""
        read_markers(self._dir.rank(rank.rank), rank)

    def complete(self) -> bool:
        return len(self.ranks) == self._world_size

    def all(self, holds: Callable[[RankFacts], bool]) -> bool:
        """True when every rank of the world has started and ``holds`` is true of each."""
        return self.complete() and all(holds(rank) for rank in self)

    def all_ended(self) -> bool:
        """True when none of the ranks that have started is left."""
        return all(rank.ended_at is not None for rank in self)

    def all_explained(self) -> bool:
        """True when all have ended and it is known of each how."""
        return self.all_ended() and all(rank.explained for rank in self)

    def failed(self) -> list[RankFacts]:
        return [rank for rank in self if rank.failed]

    def stopped_with_us(self) -> bool:
        """True where all that failed is by SIGTERM, which a machine that goes down sends to everybody at once."""
        return all(rank.signal == signal.SIGTERM and rank.error is None for rank in self.failed())

    def root_cause_is_clear(self) -> bool:
        """True once a failure is known that is not the consequence of another's."""
        return any(not is_cascade(rank) and (rank.error is not None or rank.explained) for rank in self.failed())

    def close(self, *, torchrun_succeeded: bool) -> None:
        """Everything has ended: fill in how. torchrun succeeds only when every rank's exit code is 0."""
        for rank in self:
            rank.ended_at = time.monotonic() if rank.ended_at is None else rank.ended_at
            if rank.killed and not rank.explained:
                rank.signal = signal.SIGKILL  # torchrun had reaped it and was gone before it could tell
            if torchrun_succeeded and not rank.explained:
                rank.exit_code = 0
            if rank.signal == signal.SIGKILL and not rank.killed:
                rank.oom = oom_evidence(rank.pid, self._oom_kills_before)
            self.read(rank)

    def kill(self, rank: RankFacts) -> None:
        """SIGKILL a rank that has neither ended nor finished; its end then tells nothing about a cause."""
        if rank.ended_at is None and not rank.done:
            rank.killed = send(rank, signal.SIGKILL) or rank.killed


def send(rank: RankFacts, number: int) -> bool:
    """Signal this rank's own process, not its group: a data-loader worker must outlive the save it feeds.

    False where the rank has ended, also by itself and not noticed yet.
    """
    return rank.ended_at is None and send_signal(rank.identity, number)


def ask_for_stacks(rank: RankFacts) -> None:
    """Nothing where nobody listens any more, as after ``os.exec``: an unhandled signal would kill the rank."""
    if has_signal_handler(rank.pid, STACK_SIGNAL):
        send(rank, STACK_SIGNAL)
