import pytest

from rekindle.contract.outcome import OutcomeClass, SavedProgress
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.rank_records import MetricPoint, RankError
from rekindle.keeper.attempt_result import AttemptResult, Ending, RankResult
from rekindle.keeper.diagnosis import diagnose
from rekindle.keeper.retry_policy import Stop, decide
from rekindle.training.step_boundary import NonFiniteError, NonFinitePolicy, first_non_finite_loss


def point(step, **values):
    return MetricPoint(step, 0, 0.0, values)


def test_the_first_non_finite_loss_is_named_and_other_metrics_may_be_infinite():
    points = [
        point(1, loss=0.5, perplexity=float("inf")),
        point(2, aux_Loss=float("-inf")),
        point(3, loss=float("nan")),
    ]
    assert first_non_finite_loss(points) == (2, "aux_Loss is -inf at step 2")
    assert first_non_finite_loss(points[:1]) is None
    assert first_non_finite_loss([point(1, loss=None)]) is None


def test_rollbacks_are_limited_unless_a_new_snapshot_shows_progress():
    policy = NonFinitePolicy("rollback")
    for _ in range(3):
        policy.check_rollback(40, "loss is nan")
    policy.check_rollback(50, "loss is nan")
    for _ in range(2):
        policy.check_rollback(50, "loss is nan")
    with pytest.raises(NonFiniteError, match="again after 3 rollbacks to the snapshot of step 50"):
        policy.check_rollback(50, "loss is nan")


def test_a_non_finite_training_is_diagnosed_as_such_and_not_retried():
    error = RankError(1, "NonFiniteError", "loss is nan at step 47", "train.py", 7, "", None, 0.0, 0.0)
    ranks = {0: RankResult(0, 10, 1, done=True), 1: RankResult(1, 11, 1, ended_at=1.0, exit_code=1, error=error)}
    outcome = diagnose(AttemptResult(1, 2, Ending.RANK_FAILED, ranks=ranks))
    assert (outcome.klass, outcome.rank) == (OutcomeClass.NAN, 1)
    assert "loss is nan at step 47" in outcome.message
    attempt = AttemptInfo(1, outcome=outcome, progress=SavedProgress.KNOWN)
    assert isinstance(decide([attempt], max_failures=3), Stop)


def test_a_copy_in_shared_memory_is_progress_too():
    facts = AttemptResult(1, 2, Ending.RANK_FAILED, resumed_from_step=40, memory_step=47)
    assert facts.progress is SavedProgress.KNOWN
    facts.memory_step = 40
    assert facts.progress is SavedProgress.NONE
