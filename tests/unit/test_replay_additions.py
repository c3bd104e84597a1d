"""What a replay is to do besides computing its steps: refused with what is wrong where that is known at submit."""

from dataclasses import replace

import pytest

from rekindle.contract.environment import RUN_DIR, RankEnv
from rekindle.contract.files import write_json
from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import Replay, TargetKind
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.jobs.replay import Additions, Steps, failed_steps
from rekindle_service.store.tables import Job
from rekindle_service.submission import SubmissionError

GOOD = "def before_step(step):\n    print(step)\n"
SPEC = JobSpec("digits", TargetKind.SCRIPT, "train.py", "/python")
JOB = Job(id="a" * 10, number=7, name="digits", spec=SPEC)

WRONG = {
    "a syntax error": ("def before_step(step)\n    pass\n", "expected ':' (script, line 1)"),
    "no function of the interface": ("def before(step):\n    pass\n", "must define before_step(step) or after_step("),
    "nothing": ("", "must define before_step(step) or after_step(step)"),
    "a null byte": ("x = 1\0", "null bytes"),
    "half a surrogate pair": ("x = '\ud800'", "must be Python 3"),
    "too deep": ("-" * 60_000 + "1", "must be Python 3"),
    "too large": ("#" * 65_537, "at most 65,536 bytes"),
    "too large in UTF-8": ("#" + "é" * 32_768, "at most 65,536 bytes"),
}


@pytest.mark.parametrize(("text", "rule"), WRONG.values(), ids=WRONG)
def test_a_hook_that_cannot_be_called_is_refused_with_the_reason(text: str, rule: str) -> None:
    (error,) = Additions(hook=text).errors(2)
    assert (error.field, rule in error.rule) == ("script", True), error.rule
    assert error.hint


def test_a_hook_of_exactly_the_limit_and_a_rank_of_the_replay_are_accepted() -> None:
    text = GOOD + "#" * (65_536 - len(GOOD))
    assert Additions(hook=text, rank=1).errors(2) == []
    (error,) = Additions(hook=GOOD, rank=2).errors(2)
    assert (error.field, error.rule, error.value) == ("rank", "must be a rank of the replay: 0 to 1", 2)


OUTCOMES = {
    "loss": (OutcomeClass.NAN, "NonFiniteError: loss is nan at step 61; on_nan='rollback' or …", Steps(61, 61)),
    "weights": (OutcomeClass.NAN, "fc.weight is not finite after step 61; on_nan='rollback' or …", Steps(61, 61)),
    "steps": (OutcomeClass.DIVERGENCE, "silent divergence in steps 9 to 12: rank 2, parameters of a", Steps(9, 12)),
    "step": (OutcomeClass.DIVERGENCE, "silent divergence in step 9: rank 2, parameters of a", Steps(9, 9)),
    "no number": (OutcomeClass.NAN, "the loss is not finite", None),
    "other": (OutcomeClass.USER_ERROR, "ValueError: wrong at step 3", None),
}


@pytest.mark.parametrize(("klass", "message", "steps"), OUTCOMES.values(), ids=OUTCOMES)
def test_without_a_step_those_of_the_outcome_are_taken(klass: OutcomeClass, message: str, steps: Steps | None) -> None:
    attempts = [AttemptInfo(1), AttemptInfo(2, outcome=Outcome(klass, message))]
    if steps is not None:
        assert failed_steps(JOB, attempts) == steps
        return
    for each in (attempts, attempts[:1], []):
        with pytest.raises(SubmissionError, match="step: is needed, since the outcome of job 7 names none"):
            failed_steps(JOB, each)


def test_what_a_replay_does_reaches_the_ranks(tmp_path) -> None:
    wanted = Replay("b" * 10, 60, hook=True, rank=3)
    write_json(RunDir(tmp_path).spec, replace(SPEC, replay=wanted).to_json())
    spec = RankEnv.read({RUN_DIR: str(tmp_path)}).spec
    assert spec is not None
    assert spec.replay == wanted
    assert RankEnv.read({}).spec is None
