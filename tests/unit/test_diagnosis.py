from rekindle.contract.outcome import OutcomeClass
from rekindle.contract.run_dir.rank_records import RankError
from rekindle.keeper.diagnosis import diagnose
from rekindle.keeper.facts import AttemptFacts, Ending, RankFacts
from rekindle.keeper.verdict import Ended, Stop, decide


def failed_attempt(exception, message):
    error = RankError(1, exception, message, "train.py", 7, "", None, 0.0, 0.0)
    ranks = {0: RankFacts(0, 0, 10, 1, done=True), 1: RankFacts(1, 1, 11, 1, ended_at=1.0, exit_code=1, error=error)}
    return AttemptFacts(attempt=1, world_size=2, ending=Ending.RANK_FAILED, ranks=ranks)


def test_a_training_gone_bad_is_told_as_such_and_not_tried_again():
    outcome = diagnose(failed_attempt("NonFiniteError", "loss is nan at step 47; on_nan='rollback' would go on"))
    assert (outcome.klass, outcome.rank) == (OutcomeClass.NAN, 1)
    assert "loss is nan at step 47" in outcome.message
    assert isinstance(decide([Ended(outcome, progressed=True)], max_failures=3), Stop)


def test_progress_counts_wherever_it_is_kept():
    facts = failed_attempt("ValueError", "no")
    facts.resumed_from_step, facts.memory_step = 40, 47
    assert facts.progressed
    facts.memory_step = 40
    assert not facts.progressed
