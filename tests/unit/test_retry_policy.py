"""No retry of what it cannot cure, and no stop where a retry would have cured it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.contract.outcome import Outcome, OutcomeClass, SavedProgress
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.keeper.retry_policy import (
    ACTIONS,
    MAX_DELAY,
    MAX_HARDWARE,
    MAX_SAME,
    Action,
    Retry,
    Stop,
    decide,
    is_from_outside,
    timeout_factor,
)

FREE = [klass for klass, action in ACTIONS.items() if action is Action.RETRY_FREE]
COUNTED = [klass for klass, action in ACTIONS.items() if action is Action.RETRY]
NONE, KNOWN, UNKNOWN = SavedProgress.NONE, SavedProgress.KNOWN, SavedProgress.UNKNOWN
HOUR = 3600.0


def ended(klass, progress=NONE, *, at=None, ran=0.0, loaded=None, exception=None, line=1, by=None, retryable=True,
          exit_code=None, resumed=False, rank=None, **evidence):  # fmt: skip
    place = {"exception": exception, "file": "train.py", "line": line, "rank": rank} if exception else {}
    outcome = Outcome(klass, "…", retryable=retryable, exit_code=exit_code, signal=by, evidence=evidence, **place)
    known = {"loaded": loaded, "resumed_from_step": 0 if resumed else None}
    return AttemptInfo(1, outcome=outcome, progress=progress, running_seconds=ran, last_step=at, **known)


def killed(progress=NONE, by="SIGKILL", **how):
    return ended(OutcomeClass.SIGNAL, progress, by=by, **how)


def raised(progress=NONE, exception="E", **how):
    return ended(OutcomeClass.USER_ERROR, progress, exception=exception, **how)


def hung(progress=NONE, line=1, **evidence):
    outcome = Outcome(OutcomeClass.HANG, "…", rank=1, file="train.py", line=line, evidence=evidence)
    return AttemptInfo(1, outcome=outcome, progress=progress, running_seconds=300.0)


def resized(progress=KNOWN):
    return ended(OutcomeClass.PREEMPTED, progress, ending="resize")


LOST, LOST_ON = ended(OutcomeClass.KEEPER_LOST), ended(OutcomeClass.PREEMPTED, KNOWN, at=5)
GONE = ended(OutcomeClass.USER_ERROR, KNOWN, exit_code=0)
PROGRESS = Retry(0.0, "the attempt made progress: retrying at once")


def test_every_class_of_outcome_has_an_action():
    assert set(ACTIONS) == set(OutcomeClass)


@pytest.mark.parametrize(
    ("history", "max_failures", "expected"),
    [
        ([ended(OutcomeClass.SUCCESS)], 3, Stop(True, "every rank finished")),
        ([ended(OutcomeClass.NAN, KNOWN)], 3, Stop(False, "nan is not retryable")),
        ([ended(OutcomeClass.CANCELLED)], 3, Stop(False, "cancelled is not retryable")),
        ([raised(retryable=False)], 3, Stop(False, "user_error is not retryable")),
        # known lack of progress: every failure counts, and the user's limit is the only one
        ([killed()], 1, Stop(False, "max_failures is 1")),
        ([killed()], 3, Retry(1.0, "failure 1 of 3")),
        ([killed()] * 2, 3, Retry(2.0, "failure 2 of 3")),
        ([killed()] * 3, 3, Stop(False, "3 failures in a row without progress; max_failures is 3")),
        ([killed()] * 12, 20, Retry(MAX_DELAY, "failure 12 of 20")),
        ([killed()] * 20, 20, Stop(False, "20 failures in a row")),
        ([raised()], 3, Retry(1.0, "failure 1 of 3")),
        ([raised()] * 2, 9, Stop(False, "the same exception twice")),
        ([raised(), LOST, raised()], 9, Stop(False, "the same exception twice")),
        ([raised(rank=0), raised(rank=1)], 9, Stop(False, "the same exception twice")),
        ([raised(at=5), raised(at=40)], 9, Stop(False, "the same exception twice")),
        ([raised(), raised(line=2)], 9, Retry(2.0, "failure 2 of 9")),
        ([killed(by="SIGSEGV", at=7)] * 2, 9, Stop(False, "SIGSEGV twice at the same point")),
        ([killed(by="SIGSEGV", at=7), killed(by="SIGSEGV", at=9)], 9, Retry(2.0, "failure 2 of 9")),
        # known progress: the count begins again, at once
        ([killed(KNOWN)], 1, PROGRESS),
        ([killed(), killed(), killed(KNOWN, at=5)], 3, PROGRESS),
        ([killed(), killed(), killed(KNOWN, at=5), killed()], 3, Retry(1.0, "failure 1 of 3")),
        ([raised(at=4), raised(KNOWN, at=9)], 9, PROGRESS),
        ([raised(), killed(KNOWN), raised()], 9, Retry(1.0, "failure 1 of 9")),
        ([raised(KNOWN, "ConnectionResetError", at=5), raised(KNOWN, "ConnectionResetError", at=40)], 1, PROGRESS),
        ([killed(KNOWN, at=step) for step in range(0, 60, 3)], 1, PROGRESS),
        ([raised(KNOWN), killed(KNOWN), raised(KNOWN)], 1, PROGRESS),
        # … but the same ending at a similar point is no progress, although the script saves
        ([killed(KNOWN, at=7), killed(KNOWN, at=8)], 3, Retry(1.0, "failure 1 of 3: the same ending")),
        ([killed(KNOWN, at=7)] * 3, 3, Retry(2.0, "failure 2 of 3")),
        ([killed(KNOWN, at=7)] * 4, 3, Stop(False, "same ending at the same point 4 times, although the script saves")),
        ([killed(KNOWN, at=7)] * 4, 3, Stop(False, "does it load its checkpoint?")),
        ([killed(KNOWN, at=7), killed(KNOWN, at=7), killed(KNOWN, at=9)], 3, PROGRESS),
        ([killed(KNOWN, at=7), killed(KNOWN, at=7, by="SIGSEGV")], 3, PROGRESS),
        ([killed(at=7), killed(KNOWN, at=7)], 3, PROGRESS),
        ([killed(KNOWN, at=step, resumed=True) for step in range(9)], 3, PROGRESS),
        ([raised(KNOWN, ran=20.0), raised(KNOWN, ran=24.0)], 3, Retry(1.0, "failure 1 of 3")),
        ([raised(KNOWN, ran=20.0), raised(KNOWN, ran=26.0)], 3, PROGRESS),
        ([raised(KNOWN, ran=0.2), raised(KNOWN, ran=1.0)], 3, Retry(1.0, "failure 1 of 3")),
        ([raised(KNOWN, ran=HOUR)] * 9, 3, Retry(MAX_DELAY, "after a similar time, 9 times in a row")),
        ([raised(KNOWN, ran=20.0, at=7), raised(KNOWN, ran=20.0)], 3, PROGRESS),
        ([GONE] * 3, 3, Retry(2.0, "failure 2 of 3")),
        ([GONE, killed(KNOWN), GONE], 1, PROGRESS),
        ([killed(KNOWN, ran=20.0, loaded=False)] * 4, 3, Stop(False, "does it load its checkpoint?")),
        # a signal from outside at a similar time may be chance: it only makes the pauses grow
        ([killed(KNOWN, ran=20.0)] * 2, 1, Retry(1.0, "made progress; the same ending after a similar time, 2 times")),
        ([killed(KNOWN, ran=20.0)] * 20, 1, Retry(MAX_DELAY, "20 times in a row")),
        ([killed(KNOWN, ran=20.0, loaded=True)] * 20, 1, PROGRESS),
        # progress that cannot be known: as for a crash loop
        ([raised(UNKNOWN)], 3, Retry(1.0, "failure 1 of 3; whether there was progress is not known")),
        ([raised(UNKNOWN)] * 2, 3, Retry(2.0, "failure 2 of 3")),
        ([raised(UNKNOWN)] * 3, 3, Stop(False, "3 failures in a row; whether there was progress is not known")),
        ([raised(UNKNOWN)] * 12, 20, Retry(MAX_DELAY, "failure 12 of 20")),
        ([raised(UNKNOWN), raised()], 9, Retry(2.0, "failure 2 of 9")),
        ([raised(UNKNOWN)] * 2 + [raised(UNKNOWN, ran=600.0)], 3, Retry(1.0, "failure 1 of 3")),
        ([raised(UNKNOWN, ran=HOUR)] * 2, 3, Retry(1.0, "failure 1 of 3")),
        ([raised(UNKNOWN, ran=HOUR)] * 9, 3, Retry(MAX_DELAY, "failure 1 of 3")),
        ([raised(NONE, ran=HOUR), raised(NONE, line=2, ran=HOUR)], 2, Stop(False, "2 failures in a row")),
        ([killed(UNKNOWN, ran=9.0)], 1, Retry(0.0, "SIGKILL does not count as a failure")),
        ([killed(UNKNOWN, ran=9.0), killed(UNKNOWN, ran=20.0)], 1, Retry(1.0, "SIGKILL does not count")),
        ([killed(UNKNOWN, ran=9.0), killed(UNKNOWN, ran=10.0)], 3, Retry(1.0, "failure 1 of 3")),
        ([killed(UNKNOWN, ran=9.0)] * 4, 3, Stop(False, "3 failures in a row")),
        ([killed(UNKNOWN, ran=HOUR)] * 9, 1, Retry(0.0, "SIGKILL does not count")),
        ([killed(UNKNOWN, "SIGTERM"), killed(UNKNOWN, "SIGINT")], 1, Retry(1.0, "SIGINT does not count")),
        ([raised(UNKNOWN, "KeyboardInterrupt")], 1, Retry(0.0, "does not count")),
        ([killed(UNKNOWN, "SIGSEGV", ran=9.0)], 1, Stop(False, "1 failure; whether")),
        ([ended(OutcomeClass.OOM, UNKNOWN, by="SIGKILL")], 1, Stop(False, "1 failure; whether")),
        # finite whatever the script loads and saves: the same ending ten times in a row, with growing pauses
        ([raised(KNOWN, ran=20.0, loaded=True)] * 2, 1, Retry(1.0, "made progress; the same ending")),
        ([raised(KNOWN, ran=20.0, loaded=True)] * 3, 1, Retry(2.0, "after a similar time, 3 times in a row")),
        ([raised(KNOWN, ran=20.0, loaded=True)] * 10, 1, Stop(False, "10 times in a row, although the script saves")),
        ([raised(KNOWN, ran=20.0, loaded=bool(n % 2)) for n in range(10)], 5, Stop(False, "10 times in a row")),
        ([raised(KNOWN, ran=20.0, loaded=True)] * 12, 20, Retry(MAX_DELAY, "12 times in a row")),
        ([raised(KNOWN, ran=20.0, loaded=True), LOST] * 9 + [raised(KNOWN, ran=20.0, loaded=True)], 1,
         Stop(False, "after a similar time 10 times in a row")),
        ([raised(UNKNOWN, ran=HOUR)] * 10, 3, Stop(False, "10 times in a row, whether there was progress is not")),
        ([raised(KNOWN, ran=20.0, loaded=True)] * 9 + [raised(KNOWN, line=2, ran=20.0)], 1, PROGRESS),
        ([raised(KNOWN, ran=20.0 * 1.5**n, loaded=True) for n in range(15)], 1, PROGRESS),
        ([raised(KNOWN, ran=20.0, at=100 * n) for n in range(15)], 1, PROGRESS),
        ([raised(KNOWN, ran=20.0, resumed=True)] * 15, 1, PROGRESS),
        # what the others wait for may end: more time, before the job ends
        ([hung(may_end=True)] * 2, 3, Retry(2.0, "failure 2 of 3")),
        ([hung(may_end=True)] * 3, 3, Retry(4.0, "waits 2 times as long before it counts as hung")),
        ([hung(may_end=True), LOST, hung(may_end=True), hung(may_end=True)], 3, Retry(4.0, "2 times as long")),
        ([hung(may_end=True)] * 5, 3, Retry(16.0, "8 times as long")),
        ([hung(may_end=True)] * 6, 3, Stop(False, "6 failures in a row")),
        ([hung(may_end=True)] * 2, 2, Stop(False, "2 failures in a row")),
        ([hung(may_end=False)] * 3, 3, Stop(False, "3 failures in a row")),
        ([hung(may_end=True), hung(may_end=True), hung(line=2, may_end=True)], 3, Stop(False, "3 failures in a row")),
        ([hung(may_end=True), hung(may_end=True), killed()], 3, Stop(False, "3 failures in a row")),
        # nobody's fault
        ([LOST], 1, Retry(0.0, "keeper_lost does not count")),
        ([killed(), LOST, killed(), LOST], 3, Retry(0.0, "keeper_lost")),
        ([killed(), LOST, killed(), LOST, killed()], 3, Stop(False, "3 failures in a row")),
        ([LOST, LOST], 3, Retry(1.0, "keeper_lost")),
        ([LOST] * 4, 3, Retry(4.0, "keeper_lost")),
        ([LOST, LOST_ON, LOST], 3, Retry(0.0, "keeper_lost")),
        ([LOST_ON] * 3, 3, Retry(2.0, "preempted does not count")),
        ([LOST] * 500, 3, Retry(MAX_DELAY, "keeper_lost")),
        ([raised(UNKNOWN), raised(UNKNOWN, hardware="Xid 79")], 2, Retry(0.0, "user_error does not count")),
        ([raised(retryable=False, hardware="Xid 79")], 2, Stop(False, "not retryable")),
        # other devices are no failure
        ([resized()], 1, Retry(0.0, "")),
        ([resized(NONE)] * 5, 1, Retry(0.0, "")),
        ([killed(), killed(), resized(NONE)], 1, Retry(0.0, "")),
        ([raised(), resized(NONE), raised()], 9, Stop(False, "the same exception twice")),
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


def test_the_time_for_what_may_end_grows_from_its_third_verdict_at_one_line():
    assert [timeout_factor([hung(KNOWN, may_end=True)] * count) for count in range(8)] == [1, 1, 1, 2, 4, 8, 8, 8]
    assert timeout_factor([*[hung(may_end=True)] * 3, ended(OutcomeClass.SUCCESS)]) == 1


def test_how_long_a_healthy_attempt_runs_is_a_setting():
    history = [raised(UNKNOWN, ran=5.0)] * 9
    assert isinstance(decide(history, 3), Stop)
    assert isinstance(decide(history, 3, healthy_seconds=4.0), Retry)


def test_a_job_with_twenty_failures_is_retried_after_twelve_kills_without_visible_progress():
    for progress in (NONE, UNKNOWN):
        _, decisions = played([killed(progress, ran=9.0, at=at) for at in (None, 3) for _ in range(6)], 20)
        assert len(decisions) == 12
        assert all(isinstance(decision, Retry) for decision in decisions)


def test_a_script_that_saves_and_dies_at_the_same_step_is_slowed_down_and_stopped():
    made, decisions = played([killed(KNOWN, at=7 + number % 2, ran=1.0) for number in range(42)], 3)
    assert [decision.delay for decision in decisions[:-1]] == [0.0, 1.0, 2.0]
    assert len(made) == 4


_attempts = st.builds(
    ended,
    st.sampled_from([*COUNTED, *FREE]),
    st.sampled_from(SavedProgress),
    at=st.none() | st.integers(0, 5),
    ran=st.floats(0, 1000),
    exception=st.none() | st.sampled_from(["A", "B", "C"]),
    line=st.integers(1, 4),
    by=st.none() | st.sampled_from(["SIGKILL", "SIGSEGV"]),
    loaded=st.none() | st.booleans(),
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
def test_never_more_failures_known_to_have_saved_nothing_than_allowed(attempts, max_failures):
    made, _ = played(attempts, max_failures)
    without_progress = 0
    for attempt in made:
        if attempt.progress is not NONE:
            without_progress = 0
        without_progress += attempt.progress is NONE and attempt.outcome.klass in COUNTED
        assert without_progress <= max_failures


@given(attempts=st.lists(_attempts, min_size=1, max_size=30), max_failures=st.integers(1, 5))
def test_an_attempt_that_progressed_is_followed_by_another_unless_it_ended_like_one_before(attempts, max_failures):
    made, decisions = played(attempts, max_failures)
    for number, (attempt, decision) in enumerate(zip(made, decisions, strict=True)):
        endings = [(one.outcome.exception, one.outcome.line or one.outcome.signal) for one in made[: number + 1]]
        if attempt.outcome.klass in FREE or (attempt.progress is KNOWN and endings[-1] not in endings[:-1]):
            assert isinstance(decision, Retry)


@given(history=st.lists(_attempts, max_size=20), free=st.sampled_from(FREE), max_failures=st.integers(1, 5))
def test_what_is_nobodys_fault_never_ends_a_job_and_never_counts(history, free, max_failures):
    assert isinstance(decide([*history, ended(free)], max_failures), Retry)
    failure = raised(exception="D")
    assert decide([*history, ended(free), failure], max_failures) == decide([*history, failure], max_failures)


@given(attempt=_attempts, max_failures=st.integers(1, 20))
def test_a_script_that_always_ends_in_the_same_way_is_not_retried_for_ever(attempt, max_failures):
    made, _ = played([attempt] * 40, max_failures)
    may_go_on = attempt.outcome.klass in FREE or is_from_outside(attempt)
    assert may_go_on or len(made) <= max(MAX_SAME, max_failures + 1)


@given(attempts=st.lists(_attempts, min_size=1, max_size=30), jitter=st.floats(0, 1, exclude_max=True))
def test_no_wait_exceeds_the_maximum_and_its_jitter(attempts, jitter):
    _, decisions = played(attempts, 5, jitter)
    assert all(0 <= decision.delay < MAX_DELAY * 1.25 for decision in decisions if isinstance(decision, Retry))


def test_a_resize_neither_adds_to_the_count_of_failures_nor_hides_them():
    assert decide([killed(), resized(NONE), killed()], 2) == decide([killed(), killed()], 2)
    assert decide([killed(), resized(KNOWN), killed()], 2) == decide([killed()], 2)


def test_a_gpu_that_fails_again_and_again_without_progress_ends_the_job_and_one_that_lets_it_progress_does_not():
    failed = ended(OutcomeClass.COMM, hardware="GPU 0: Xid 79")
    assert isinstance(decide([failed] * MAX_HARDWARE, 3), Retry)
    assert decide([failed] * (MAX_HARDWARE + 1), 3) == Stop(
        False, "a GPU failed in 11 attempts in a row without progress"
    )
    progressed = ended(OutcomeClass.COMM, KNOWN, at=5, hardware="GPU 0: Xid 79")
    assert isinstance(decide([*[failed] * MAX_HARDWARE, progressed, failed], 3), Retry)
