"""Mistakes with replicas: what would fail again costs one attempt, and what would not fail at all is reported."""

import pytest

from rekindle.contract.run_dir.journal import RecordType


def test_parameters_that_get_no_gradient_cost_one_attempt_and_not_all_that_are_allowed(begin):
    run = begin("replicas.py", "idle")
    assert run.finish() == "failed"
    (outcome,) = run.outcomes()
    assert (outcome["class"], outcome["retryable"]) == ("user_error", False)
    assert "find_unused_parameters=True" in outcome["message"]
    (end,) = run.records(RecordType.ATTEMPT_ENDED)
    assert end.progress == "unknown"


@pytest.mark.parametrize(("how", "named"), [("apart", True), ("alike", False)])
def test_ranks_that_silently_train_different_models_are_reported_and_replicas_are_not(begin, how, named):
    run = begin("replicas.py", how)
    assert run.finish() == "succeeded"
    status = run.status(0)
    assert status is not None
    assert ("the weights of rank 1 differ from rank 0's since step 4," in (status.notice or "")) is named
    assert (status.notice is not None) is named
