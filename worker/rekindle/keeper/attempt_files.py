"""What the files of an attempt show after it has ended."""

import re
from collections.abc import Iterable
from typing import TypeVar

from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import AttemptDir, RankDir, RunDir
from rekindle.contract.run_dir.rank_records import RankDone, RankError, RankStatus
from rekindle.contract.safe_open import read_text_from, regular_size
from rekindle.keeper.attempt_result import AttemptResult, Ending, RankResult

N = TypeVar("N", int, float)

_TAIL = 4000  # bytes of torchrun's output that are evidence
_MAX_TAIL = 256 << 10  # bytes in which torchrun may report on each of many ranks


def read_rank_result(rank_dir: RankDir, rank: int) -> RankResult | None:
    """A rank as its own files describe it, or None where it has not started."""
    status = read_record(rank_dir.status, RankStatus)
    if status is None:
        return None
    result = RankResult(rank, status.local_rank, status.pid, status.start_time)
    read_markers(rank_dir, result)
    return result


def read_markers(rank_dir: RankDir, rank: RankResult) -> None:
    """Update ``rank`` by the done marker and the error that it may have written."""
    if (done := read_record(rank_dir.done, RankDone)) is not None:
        rank.done, rank.drained = True, done.drained
    rank.error = read_record(rank_dir.error, RankError) or rank.error


def read_lost_attempt(run_dir: RunDir, number: int, world_size: int) -> AttemptResult:
    """An attempt whose keeper died before it could write the end. Done markers of all ranks make it a success."""
    attempt_dir = run_dir.attempt(number)
    ranks = {rank: RankResult(rank, rank, pid=0, start_time=0) for rank in range(world_size)}
    for rank in ranks.values():
        read_markers(attempt_dir.rank(rank.rank), rank)
    ending = Ending.DONE if all(rank.done for rank in ranks.values()) else Ending.KEEPER_LOST
    result = AttemptResult(attempt=number, world_size=world_size, ending=ending, ranks=ranks)
    read_steps(result, attempt_dir)
    return result


def read_steps(result: AttemptResult, attempt_dir: AttemptDir) -> None:
    """Fill in how far the ranks came, as they last reported."""
    found = (read_record(attempt_dir.rank(number).status, RankStatus) for number in attempt_dir.rank_numbers())
    statuses = [status for status in found if status is not None]
    result.resumed_from_step = _highest(status.resumed_from_step for status in statuses)
    result.last_step = _highest(status.step for status in statuses)
    result.snapshot_step = _highest(status.snapshot_step for status in statuses)
    result.memory_step = _highest(status.memory_step for status in statuses)
    result.saving_seconds = _highest(status.saving_seconds for status in statuses)


def _highest(values: Iterable[N | None]) -> N | None:
    return max((value for value in values if value is not None), default=None)


def agent_log_tail(attempt_dir: AttemptDir, max_bytes: int = _TAIL) -> str:
    """The end of torchrun's own output."""
    log = attempt_dir.agent_log
    return read_text_from(log, max(0, regular_size(log) - max_bytes))


def stopped_by_torchrun(attempt_dir: AttemptDir, pid: int) -> bool:
    """True where torchrun logged that it sent SIGTERM to ``pid``: nobody else would log that."""
    log = agent_log_tail(attempt_dir, _MAX_TAIL)
    return bool(re.search(rf"process {pid} (via|closing) signal SIGTERM", log))
