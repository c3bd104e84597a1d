"""What the files of an attempt tell after it has ended."""

import re

from rekindle.contract.files import open_regular
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import AttemptDir, RankDir, RunDir
from rekindle.contract.run_dir.rank_records import RankDone, RankError, RankStatus
from rekindle.keeper.attempt_result import AttemptResult, Ending, RankResult

_TAIL = 4000  # bytes of torchrun's output that are evidence
_LONGEST_TAIL = 256 << 10  # bytes in which it may tell of each of many ranks


def read_statuses(attempt_dir: AttemptDir) -> list[RankStatus]:
    """The last word of every rank that left one."""
    found = (read_record(attempt_dir.rank(number).status, RankStatus) for number in attempt_dir.rank_numbers())
    return [status for status in found if status is not None]


def rank_of_folder(folder: RankDir, rank: int) -> RankResult | None:
    """A rank as it told of itself in its folder, or None where it has not started."""
    status = read_record(folder.status, RankStatus)
    if status is None:
        return None
    facts = RankResult(rank, status.local_rank, status.pid, status.start_time)
    read_testimony(folder, facts)
    return facts


def read_testimony(folder: RankDir, rank: RankResult) -> None:
    """Take in what the rank itself has left: a done marker, an error."""
    if (done := read_record(folder.done, RankDone)) is not None:
        rank.done, rank.drained = True, done.drained
    rank.error = read_record(folder.error, RankError) or rank.error


def facts_of_lost_attempt(run_dir: RunDir, number: int, world_size: int) -> AttemptResult:
    """An attempt whose keeper died before it could write the end. Done markers of all ranks make it a success."""
    folder = run_dir.attempt(number)
    ranks = {rank: RankResult(rank, rank, pid=0, start_time=0) for rank in range(world_size)}
    for rank in ranks.values():
        read_testimony(folder.rank(rank.rank), rank)
    ending = Ending.DONE if all(rank.done for rank in ranks.values()) else Ending.KEEPER_LOST
    facts = AttemptResult(attempt=number, world_size=world_size, ending=ending, ranks=ranks)
    read_steps(facts, folder)
    return facts


def read_steps(facts: AttemptResult, attempt_dir: AttemptDir) -> None:
    """Fill in how far the ranks came, by their own last words."""
    statuses = read_statuses(attempt_dir)
    facts.resumed_from_step = max(
        (s.resumed_from_step for s in statuses if s.resumed_from_step is not None), default=None
    )
    facts.last_step = max((s.step for s in statuses if s.step is not None), default=None)
    facts.snapshot_step = max((s.snapshot_step for s in statuses if s.snapshot_step is not None), default=None)
    facts.memory_step = max((s.memory_step for s in statuses if s.memory_step is not None), default=None)
    facts.saving_seconds = max((s.saving_seconds for s in statuses if s.saving_seconds is not None), default=None)


def agent_log_tail(attempt_dir: AttemptDir, most: int = _TAIL) -> str:
    """The last ``most`` bytes of torchrun's own output."""
    try:
        with open_regular(attempt_dir.agent_log) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def stopped_by_torchrun(attempt_dir: AttemptDir, pid: int) -> bool:
    """True where torchrun says that it has sent SIGTERM to ``pid``: nobody else would log that."""
    told = agent_log_tail(attempt_dir, _LONGEST_TAIL)
    return bool(re.search(rf"process {pid} (via|closing) signal SIGTERM", told))
