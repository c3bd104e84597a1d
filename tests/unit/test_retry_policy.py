"""No retry of what it cannot cure, and no stop where a retry would have cured it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.keeper.retry_policy import (
    ACTIONS,
    MAX_DELAY,
    Action,
    AttemptRecord,
    Retry,
    Stop,
    cannot_be_forked,
    decide,
)

FREE = [klass for klass, action in ACTIONS.items() if action is Action.RETRY_FREE]
COUNTED = [klass for klass, action in ACTIONS.items() if action is Action.RETRY]


def ended(klass, *, progressed=False, exception=None, line=1, retryable=True, exit_code=None):
    place = {"exception": exception, "file": "train.py", "line": line} if exception else {}
    return AttemptRecord(Outcome(klass, "…", retryable=retryable, exit_code=exit_code, **place), progressed)


KILL, KILL_AFTER_PROGRESS = ended(OutcomeClass.SIGNAL), ended(OutcomeClass.SIGNAL, progressed=True)
BUG, OTHER_BUG = ended(OutcomeClass.USER_ERROR, exception="E"), ended(OutcomeClass.USER_ERROR, exception="E", line=2)
GONE_AFTER_PROGRESS = ended(OutcomeClass.USER_ERROR, exit_code=0, progressed=True)
BUG_AFTER_PROGRESS = ended(OutcomeClass.USER_ERROR, exception="E", progressed=True)
NOT_RETRYABLE = ended(OutcomeClass.USER_ERROR, exception="SyntaxError", retryable=False)
LOST = ended(OutcomeClass.KEEPER_LOST)


def test_every_class_of_outcome_has_an_action():
    assert set(ACTIONS) == set(OutcomeClass)


@pytest.mark.parametrize(
    ("history", "max_failures", "expected"),
    [
        ([ended(OutcomeClass.SUCCESS)], 3, Stop(True, "every rank finished")),
        ([ended(OutcomeClass.NAN)], 3, Stop(False, "nan is not retryable")),
        ([ended(OutcomeClass.CANCELLED)], 3, Stop(False, "cancelled is not retryable")),
        ([NOT_RETRYABLE], 3, Stop(False, "user_error is not retryable")),
        ([LOST], 1, Retry(0.0, "keeper_lost does not count")),
        ([KILL_AFTER_PROGRESS], 1, Retry(0.0, "the attempt made progress")),
        ([KILL], 1, Stop(False, "max_failures is 1")),
        ([KILL], 3, Retry(1.0, "failure 1 of 3")),
        ([KILL, KILL], 3, Retry(2.0, "failure 2 of 3")),
        ([KILL, KILL, KILL], 3, Stop(False, "no_progress: 3 attempts")),
        ([KILL, KILL, KILL], 99, Stop(False, "no_progress: 3 attempts")),
        ([KILL, LOST, KILL, LOST], 3, Retry(0.0, "keeper_lost")),
        ([KILL, LOST, KILL, LOST, KILL], 3, Stop(False, "no_progress")),
        ([KILL, KILL, KILL_AFTER_PROGRESS], 3, Retry(0.0, "the attempt made progress")),
        ([KILL, KILL, KILL_AFTER_PROGRESS, KILL], 3, Retry(1.0, "failure 1 of 3")),
        ([KILL_AFTER_PROGRESS, KILL, KILL, KILL], 9, Stop(False, "no_progress")),
        ([BUG], 3, Retry(1.0, "failure 1 of 3")),
        ([BUG, BUG], 9, Stop(False, "the same exception twice")),
        ([BUG, OTHER_BUG], 9, Retry(2.0, "failure 2 of 9")),
        ([BUG, LOST, BUG], 9, Stop(False, "the same exception twice")),
        ([BUG, KILL_AFTER_PROGRESS, BUG], 9, Retry(1.0, "failure 1 of 9")),
        ([BUG, BUG_AFTER_PROGRESS], 9, Retry(0.0, "the attempt made progress")),
        ([BUG_AFTER_PROGRESS] * 2, 9, Retry(1.0, "the attempt made progress")),
        ([BUG_AFTER_PROGRESS] * 20, 1, Retry(MAX_DELAY, "the attempt made progress")),
        ([BUG_AFTER_PROGRESS, KILL_AFTER_PROGRESS, BUG_AFTER_PROGRESS], 9, Retry(0.0, "the attempt made progress")),
        ([KILL_AFTER_PROGRESS] * 20, 1, Retry(0.0, "the attempt made progress")),
        ([GONE_AFTER_PROGRESS], 1, Retry(0.0, "the attempt made progress")),
        ([GONE_AFTER_PROGRESS] * 3, 1, Retry(2.0, "the attempt made progress")),
        ([GONE_AFTER_PROGRESS, KILL_AFTER_PROGRESS, GONE_AFTER_PROGRESS], 1, Retry(0.0, "the attempt made progress")),
        ([LOST, LOST], 3, Retry(1.0, "keeper_lost")),
        ([LOST, LOST, LOST, LOST], 3, Retry(4.0, "keeper_lost")),
        ([LOST, ended(OutcomeClass.PREEMPTED, progressed=True), LOST], 3, Retry(0.0, "keeper_lost")),
        ([LOST] * 500, 3, Retry(MAX_DELAY, "keeper_lost")),
    ],
)  # fmt: skip
def test_a_history_has_this_decision(history, max_failures, expected):
    decision = decide(history, max_failures)
    assert type(decision) is type(expected)
    assert expected.reason in decision.reason
    if isinstance(expected, Retry):
        assert decision.delay == expected.delay
    else:
        assert decision.succeeded == expected.succeeded


_attempts = st.builds(
    ended,
    st.sampled_from([*COUNTED, *FREE]),
    progressed=st.booleans(),
    exception=st.none() | st.sampled_from(["A", "B", "C"]),
    line=st.integers(1, 4),
)


def played(attempts, max_failures, jitter=0.0):
    """The attempts that are made of ``attempts`` before the decision is to stop, and the decisions."""
    decisions = []
    for number in range(1, len(attempts) + 1):
        decisions.append(decide(attempts[:number], max_failures, jitter))
        if isinstance(decisions[-1], Stop):
            break
    return attempts[: len(decisions)], decisions


@given(attempts=st.lists(_attempts, min_size=1, max_size=30), max_failures=st.integers(1, 5))
def test_never_more_attempts_without_progress_than_allowed(attempts, max_failures):
    made, _ = played(attempts, max_failures)
    without_progress = 0
    for attempt in made:
        without_progress = 0 if attempt.progressed else without_progress + (attempt.outcome.klass in COUNTED)
        assert without_progress <= min(max_failures, 3)


@given(attempts=st.lists(_attempts, min_size=1, max_size=30), max_failures=st.integers(1, 5))
def test_an_attempt_that_progressed_is_always_followed_by_another(attempts, max_failures):
    made, decisions = played(attempts, max_failures)
    for attempt, decision in zip(made, decisions, strict=True):
        if attempt.progressed or attempt.outcome.klass in FREE:
            assert isinstance(decision, Retry)


@given(history=st.lists(_attempts, max_size=20), free=st.sampled_from(FREE), max_failures=st.integers(1, 5))
def test_what_is_nobodys_fault_never_ends_a_job_and_never_counts(history, free, max_failures):
    assert isinstance(decide([*history, ended(free)], max_failures), Retry)
    failure = ended(OutcomeClass.SIGNAL)
    with_it, without = decide([*history, ended(free), failure], max_failures), decide([*history, failure], max_failures)
    assert with_it == without


@given(attempts=st.lists(_attempts, min_size=1, max_size=30), jitter=st.floats(0, 1, exclude_max=True))
def test_no_wait_is_longer_than_the_longest_and_its_jitter(attempts, jitter):
    _, decisions = played(attempts, 5, jitter)
    assert all(0 <= decision.delay < MAX_DELAY * 1.25 for decision in decisions if isinstance(decision, Retry))


def test_a_script_that_touches_cuda_in_a_fork_is_recognised():
    message = "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use 'spawn'"
    assert cannot_be_forked(Outcome(OutcomeClass.USER_ERROR, message, exception="RuntimeError"))
    assert not cannot_be_forked(Outcome(OutcomeClass.USER_ERROR, message, exception="ValueError"))
    assert not cannot_be_forked(Outcome(OutcomeClass.USER_ERROR, "x", exception="RuntimeError"))
