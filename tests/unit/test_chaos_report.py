"""The report of a fault names its effect, its cost, and whether the diagnosis was correct."""

from dataclasses import replace

from cli_examples import outcome
from rekindle_service.cli.fault_run import (
    COLUMNS,
    FaultReport,
    all_recovered,
    diagnosis_correct,
    report_row,
    report_sentence,
)

KILLED = FaultReport(
    "kill",
    1,
    recovered=True,
    attempt_before=1,
    attempt_after=2,
    downtime=1.26,
    replayed_steps=13,
    outcome=outcome(),
    diagnosis_correct=True,
)


def test_a_diagnosis_is_correct_when_class_and_rank_are() -> None:
    for fault, rank, ending, correct in (
        ("kill", 1, outcome(), True),
        ("kill", 0, outcome(), False),
        ("stop", 1, outcome(), False),
        ("stop", 1, outcome(**{"class": "hang"}), True),
        ("hang", 1, outcome(**{"class": "hang", "rank": None}), False),
        ("agent", None, outcome(rank=None), True),
        ("agent", None, outcome(rank=1), False),
        ("keeper", None, outcome(**{"class": "keeper_lost", "rank": None}), True),
        ("oom", 1, outcome(**{"class": "oom"}), True),
        ("raise", 1, outcome(**{"class": "user_error"}), True),
        ("kill", 1, None, False),
    ):
        assert diagnosis_correct(fault, rank, ending) is correct, (fault, rank, ending)


def test_evidence_is_omitted_from_the_json() -> None:
    printed = replace(KILLED, outcome=outcome(evidence={"stacks": "x" * 10_000})).to_json()
    assert printed["outcome"] == outcome()
    assert (printed["fault"], printed["rank"], printed["replayed_steps"]) == ("kill", 1, 13)


def test_a_row_shows_fault_attempts_downtime_replayed_steps_and_diagnosis() -> None:
    assert report_row(KILLED) == ["kill rank 1", "1 → 2", "yes", "1.3 s", "13", "signal, rank 1", "yes"]
    bare = FaultReport("agent", None, recovered=False, attempt_before=3)
    assert report_row(bare) == ["agent", "3", "no", "-", "-", "-", "-"]
    assert len(report_row(bare)) == len(COLUMNS)


def test_a_sentence_describes_the_effect() -> None:
    assert report_sentence(KILLED) == "recovered after 1.3 s, attempt 2; 13 steps replayed; diagnosed as signal, rank 1"
    assert report_sentence(replace(KILLED, diagnosis_correct=False)).endswith("which is WRONG")
    lost = FaultReport("kill", 1, recovered=False, attempt_before=1, note="the job failed: boom")
    assert report_sentence(lost) == "did not recover: the job failed: boom"
    server = FaultReport("server", None, True, 1, 1, downtime=0.0, note="no server for 2.0 s")
    assert report_sentence(server) == "training was not interrupted; no server for 2.0 s"


def test_all_recovered_only_if_every_planned_fault_was_injected() -> None:
    assert all_recovered([KILLED, KILLED], 2)
    assert not all_recovered([KILLED], 2)
    assert not all_recovered([KILLED, replace(KILLED, recovered=False)], 2)
