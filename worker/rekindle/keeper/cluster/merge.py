"""From what each node reports of an attempt to one result, with all times on the leading keeper's clock. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rekindle.keeper.attempt_result import AttemptResult, Ending, RankResult
from rekindle.keeper.cluster.messages import NodeResult
from rekindle.keeper.diagnosis import ended_by_sigterm, final_ending, is_cascade, root_cause

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What is known of one node in the end. ``offset``: see ``Node``."""

    host: str
    result: NodeResult | None  # None where it was lost
    offset: float = 0.0
    lost: str | None = None  # how that was noticed
    lost_at: float = float("inf")  # seconds of CLOCK_MONOTONIC
    lost_ranks: Sequence[RankResult] = ()  # of a lost node, by what they have left in their files


def merge(result: AttemptResult, reports: Sequence[NodeReport], stop: Ending | None) -> AttemptResult:
    """Complete ``result``, which has what the leading keeper knows by itself; ``stop`` was requested meanwhile."""
    result.ranks = {rank.rank: rank for rank in _ranks(reports)}
    found = [report.result for report in reports if report.result is not None]
    first = _first_failed(found, reports) or (found[0] if found else None)
    if first is not None:
        result.agent_exit_code, result.agent_log_tail = first.agent_exit_code, first.agent_log_tail
    result.agent_signal = _first(each.agent_signal for each in found)
    result.kernel_log = [f"{report.host}: {line}" for report in reports for line in _kernel_log(report)]
    result.gpus = [gpu for each in found for gpu in each.gpus]
    result.survivors = [pid for each in found for pid in each.survivors]
    result.disk_full = any(each.disk_full for each in found)
    result.gpu_memory_held = sum(each.gpu_memory_held for each in found)
    for name in ("resumed_from_step", "last_step", "snapshot_step", "memory_step", "saving_seconds"):
        own = getattr(result, name)
        setattr(result, name, _highest([own, *(getattr(each, name) for each in found)]))
    result.commits_snapshots |= any(each.commits_snapshots for each in found)
    result.own_checkpoint_saved = _first(each.own_checkpoint_saved for each in found)
    result.own_checkpoint_loaded = _first(each.own_checkpoint_loaded for each in found)
    result.lost_nodes = {report.host: report.lost for report in reports if report.lost is not None}
    result.ending = _ending(result, reports, stop)
    return result


def _ranks(reports: Sequence[NodeReport]) -> Iterable[RankResult]:
    for report in reports:
        ranks = report.lost_ranks if report.result is None else report.result.ranks
        yield from (in_leaders_time(rank, report.offset) for rank in ranks)


def in_leaders_time(rank: RankResult, offset: float) -> RankResult:
    """``offset`` is added to the times of the node's clock, which starts when the node does."""
    error = rank.error
    if error is not None:
        error = replace(error, at_monotonic=error.at_monotonic + offset)
    ended_at = None if rank.ended_at is None else rank.ended_at + offset
    return replace(rank, error=error, ended_at=ended_at)


def _kernel_log(report: NodeReport) -> list[str]:
    return [] if report.result is None else report.result.kernel_log


def _first_failed(found: Sequence[NodeResult], reports: Sequence[NodeReport]) -> NodeResult | None:
    """The node of the rank that failed first; else one whose agent failed."""
    cause = root_cause(_ranks(reports))
    for each in found:
        if cause is not None and any(rank.rank == cause.rank for rank in each.ranks):
            return each
    return next((each for each in found if each.agent_exit_code), None)


def _ending(result: AttemptResult, reports: Sequence[NodeReport], stop: Ending | None) -> Ending:
    """A lost node explains every lost connection and every SIGTERM, and no other failure that came before."""
    ending = final_ending(result.ending, stop, result.ranks.values(), result.world_size)
    lost_at = min((report.lost_at for report in reports if report.lost is not None), default=float("inf"))
    if lost_at == float("inf") or ending is Ending.DONE or (ending.is_stop and result.drained):
        return ending
    if ending is Ending.HANG:
        return ending
    cause, by_sigterm = root_cause(result.ranks.values()), ended_by_sigterm(result.ranks.values())
    is_own = cause is not None and not is_cascade(cause) and not by_sigterm and cause.failed_at < lost_at
    return Ending.RANK_FAILED if is_own else Ending.HOST_LOST


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _highest(values: Iterable[N | None]) -> N | None:
    return max((value for value in values if value is not None), default=None)
