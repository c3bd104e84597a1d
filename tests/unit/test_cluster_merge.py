"""What several nodes report becomes one result, with one root cause."""

import signal

from rekindle.contract.outcome import OutcomeClass
from rekindle.contract.run_dir.rank_records import RankError
from rekindle.keeper.attempt_result import AttemptResult, Ending, RankResult
from rekindle.keeper.cluster.attempt_nodes import NodeReport, merge
from rekindle.keeper.diagnosis import diagnose


def rank_of(number: int, *, ended_at: float = 0.0, error: RankError | None = None, **fields: object) -> RankResult:
    return RankResult(number, 100 + number, 1, ended_at=ended_at, error=error, **fields)  # type: ignore[arg-type]


def raised(rank: int, at: float, message: str = "planted") -> RankError:
    exception = "DistNetworkError" if "closed" in message else "ValueError"
    return RankError(rank, exception, message, "train.py", 1, "", None, 0.0, at)


def report(host: str, *ranks: RankResult, offset: float = 0.0, **fields: object) -> NodeReport:
    return NodeReport(host, result_of(*ranks, **fields), offset)


def lost_node(reason: str, at: float, rank: RankResult) -> NodeReport:
    return NodeReport("n2", result_of(rank), lost=reason, lost_at=at)


def result_of(*ranks: RankResult, **fields: object) -> AttemptResult:
    return AttemptResult(1, 1, Ending.DONE, ranks={rank.rank: rank for rank in ranks}, **fields)  # type: ignore[arg-type]


def merged(*reports: NodeReport, ending: Ending = Ending.RANK_FAILED, stop: Ending | None = None) -> AttemptResult:
    return merge(AttemptResult(1, 2, ending), reports, stop)


def test_the_first_failure_is_found_though_the_nodes_clocks_start_at_different_times() -> None:
    first = report("n1", rank_of(0, error=raised(0, 5000.0)), offset=0.0)
    second = report("n2", rank_of(1, error=raised(1, 100.0)), offset=4899.0)  # at 4999.0 of the coordinator's clock
    assert diagnose(merged(first, second)).rank == 1


def test_a_lost_node_explains_lost_connections_of_the_others_but_no_earlier_failure() -> None:
    lost = lost_node("the connection was closed", 11.0, rank_of(1, killed=True))
    cascade = report("n1", rank_of(0, error=raised(0, 10.0, "connection closed by peer [gloo")))
    outcome = diagnose(merged(cascade, lost))
    assert outcome.klass is OutcomeClass.HOST_LOST
    assert outcome.message == "Node n2 was lost: the connection was closed."
    outcome = diagnose(merged(report("n1", rank_of(0, error=raised(0, 10.0))), lost))
    assert (outcome.klass, outcome.rank) == (OutcomeClass.USER_ERROR, 0)


def test_ranks_that_have_all_finished_are_a_success_even_where_their_node_is_lost_then() -> None:
    finished = {"done": True, "completed": True}
    lost = lost_node("silent", 70.0, rank_of(1, **finished))
    result = merged(report("n1", rank_of(0, **finished)), lost, ending=Ending.HOST_LOST)
    assert result.ending is Ending.DONE


def test_ranks_that_got_sigterm_together_were_stopped_by_the_shutdown_of_the_allocation() -> None:
    ranks = [rank_of(number, signal=signal.SIGTERM) for number in (0, 1)]
    result = merged(report("n1", ranks[0]), report("n2", ranks[1]), stop=Ending.SHUTDOWN)
    assert result.ending is Ending.SHUTDOWN


def test_a_rank_that_has_lost_its_connection_to_one_that_got_sigterm_has_not_failed_either() -> None:
    ended = report("n1", rank_of(0, signal=signal.SIGTERM))
    cascade = report("n2", rank_of(1, error=raised(1, 10.0, "connection closed by peer [gloo")))
    assert merged(ended, cascade, stop=Ending.SHUTDOWN).ending is Ending.SHUTDOWN
    other = report("n2", rank_of(1, error=raised(1, 10.0)))
    assert merged(ended, other, stop=Ending.SHUTDOWN).ending is Ending.RANK_FAILED


def test_a_node_that_is_lost_after_its_ranks_got_sigterm_went_down_with_them() -> None:
    stopped = rank_of(1, signal=signal.SIGTERM, ended_at=10.0)
    lost = lost_node("the connection was closed", 11.0, stopped)
    cascade = report("n1", rank_of(0, error=raised(0, 10.5, "connection closed by peer [gloo")))
    assert merged(cascade, lost, ending=Ending.SHUTDOWN).ending is Ending.HOST_LOST


def test_steps_and_facts_of_all_nodes_are_combined() -> None:
    first = report("n1", rank_of(0), last_step=7, snapshot_step=5, gpus=["0"], kernel_log=["NVRM"], survivors=[1])
    second = report("n2", rank_of(1), last_step=8, gpus=["0"], survivors=[2], disk_full=True, gpu_memory_held=9)
    result = merged(first, second)
    assert (result.last_step, result.snapshot_step, result.gpus) == (8, 5, ["0", "0"])
    assert (result.survivors, result.kernel_log, result.disk_full) == ([1, 2], ["n1: NVRM"], True)
    assert result.gpu_memory_held == 9
