import pytest

from rekindle.contract.outcome import OutcomeClass
from rekindle.contract.run_dir.rank_records import MetricPoint, RankError
from rekindle.keeper.attempt_result import AttemptResult, Ending, RankResult
from rekindle.keeper.diagnosis import diagnose
from rekindle.keeper.retry_policy import AttemptRecord, Stop, decide
from rekindle.training.non_finite import NonFiniteError, NonFinitePolicy, first_non_finite_loss


def point(step, **values):
    return MetricPoint(step, 0, 0.0, values)


def test_the_first_loss_gone_bad_is_named_and_other_metrics_may_be_infinite():
    points = [
        point(1, loss=0.5, perplexity=float("inf")),
        point(2, aux_Loss=float("-inf")),
        point(3, loss=float("nan")),
    ]
    assert first_non_finite_loss(points) == "aux_Loss is -inf at step 2"
    assert first_non_finite_loss(points[:1]) is None
    assert first_non_finite_loss([point(1, loss=None)]) is None


def test_going_back_has_an_end_unless_a_new_snapshot_shows_progress():
    policy = NonFinitePolicy("rollback")
    for _ in range(3):
        policy.may_go_back_to(40, "loss is nan")
    policy.may_go_back_to(50, "loss is nan")
    for _ in range(2):
        policy.may_go_back_to(50, "loss is nan")
    with pytest.raises(NonFiniteError, match="again after going back to the snapshot of step 50 3 times"):
        policy.may_go_back_to(50, "loss is nan")


def test_a_training_gone_bad_is_told_as_such_and_not_tried_again():
    error = RankError(1, "NonFiniteError", "loss is nan at step 47", "train.py", 7, "", None, 0.0, 0.0)
    ranks = {0: RankResult(0, 0, 10, 1, done=True), 1: RankResult(1, 1, 11, 1, ended_at=1.0, exit_code=1, error=error)}
    outcome = diagnose(AttemptResult(1, 2, Ending.RANK_FAILED, ranks))
    assert (outcome.klass, outcome.rank) == (OutcomeClass.NAN, 1)
    assert "loss is nan at step 47" in outcome.message
    assert isinstance(decide([AttemptRecord(outcome, progressed=True)], max_failures=3), Stop)


def test_a_copy_in_shared_memory_is_progress_too():
    facts = AttemptResult(1, 2, Ending.RANK_FAILED, resumed_from_step=40, memory_step=47)
    assert facts.progressed
    facts.memory_step = 40
    assert not facts.progressed
