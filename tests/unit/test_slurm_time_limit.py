"""When a coordinator stops an attempt because the limit of its Slurm job is near."""

import time
from pathlib import Path

import pytest

from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.keeper.cluster import slurm_job
from rekindle.keeper.cluster.slurm_job import Limit, TimeLimit, latest_stop_seconds, lead_time, parse_limit


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1:00", 60), ("2:03:04", 7384), ("1-02:03:04", 93_784), ("UNLIMITED", float("inf"))],
)
def test_a_limit_as_squeue_prints_it(text: str, seconds: float) -> None:
    assert parse_limit(text) == seconds


@pytest.mark.parametrize("text", ["INVALID", "NOT_SET", "", "60"])
def test_what_is_no_limit_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is no time limit"):
        parse_limit(text)


@pytest.mark.parametrize(
    ("limit", "stop", "lead"),
    [
        (8 * 3600, None, 90),
        (8 * 3600, 2, 15),
        (8 * 3600, 40, 80),
        (8 * 3600, 600, 150),
        (60, None, 6),
        (60, 40, 6),
    ],
)
def test_the_lead_follows_what_a_stop_takes_and_is_at_most_a_tenth(limit: float, stop: float, lead: float) -> None:
    assert lead_time(limit, stop) == lead


class Clock:
    """The test moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(slurm_job.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(slurm_job.time, "time", lambda: self.now + 1e9)


@pytest.mark.parametrize(
    ("started_ago", "at"), [(0, 540), (20, 520), (3600, 540), (-3600, 540)], ids=["", "late", "ahead", "behind"]
)
def test_it_leaves_a_tenth_before_the_end_whatever_the_clock_of_the_node(
    monkeypatch: pytest.MonkeyPatch, started_ago: float, at: float
) -> None:
    clock, reasons = Clock(monkeypatch), list[str]()
    limit = TimeLimit(lambda: Limit(600, 1e9 + 1000 - started_ago), lambda: None, reasons.append)
    for second in range(700):
        clock.now = 1000.0 + second
        limit.check()
        assert bool(reasons) == (second >= at)
    assert reasons == ["Its time limit was 60 s away."]


def test_a_limit_that_grows_meanwhile_counts_and_slurm_is_asked_again_where_it_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, reasons, asked = Clock(monkeypatch), list[str](), list[float]()
    answers = [None, Limit(600, 1e9 + 1000), Limit(1200, 1e9 + 1000), Limit(1200, 1e9 + 1000)]
    limit = TimeLimit(lambda: asked.append(clock.now - 1000) or answers[len(asked) - 1], lambda: None, reasons.append)
    for second in range(1300):
        clock.now = 1000.0 + second
        limit.check()
    assert asked == [0, 60, 540, 1110]
    assert len(reasons) == 1


def test_the_latest_stop_on_request_is_known_from_the_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    now = time.time()
    for attempt, klass, seconds in [(1, OutcomeClass.PREEMPTED, 4.0), (2, OutcomeClass.PREEMPTED, 7.0),
                                    (3, OutcomeClass.HANG, 60.0)]:  # fmt: skip
        if klass is OutcomeClass.PREEMPTED:
            journal.write(RecordType.STOP_REQUESTED, at=now, attempt=attempt, ending="shutdown")
        outcome = Outcome(klass, "It ended.").to_json()
        journal.write(RecordType.ATTEMPT_ENDED, at=now + seconds, attempt=attempt, outcome=outcome)
    assert latest_stop_seconds(tmp_path / "journal.jsonl") == pytest.approx(7.0)
    assert latest_stop_seconds(tmp_path / "none") is None
