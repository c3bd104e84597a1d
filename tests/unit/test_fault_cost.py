"""What a fault has cost is told from the attempts around it."""

from dataclasses import replace

import pytest

from cli_examples import attempt, outcome
from rekindle_service.cli.fault_cost import (
    COLUMNS,
    Cost,
    all_came_back,
    named_rightly,
    row,
    sentence,
    steps_repeated,
)

KILLED = Cost(
    "kill",
    1,
    came_back=True,
    attempt_before=1,
    attempt_after=2,
    downtime=1.26,
    steps_repeated=13,
    outcome=outcome(),
    named_rightly=True,
)


@pytest.mark.parametrize(
    ("fault", "rank", "told", "right"),
    [
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
    ],
)
def test_an_outcome_is_right_when_class_and_rank_are(fault: str, rank: int | None, told: object, right: bool) -> None:
    assert named_rightly(fault, rank, told) is right


def test_steps_between_the_last_one_and_the_snapshot_are_repeated() -> None:
    assert steps_repeated(attempt(last_step=133), 120) == 13
    assert steps_repeated(attempt(last_step=3), 0) == 3
    assert steps_repeated(attempt(last_step=None), 0) is None


def test_evidence_stays_out_of_the_json() -> None:
    told = replace(KILLED, outcome=outcome(evidence={"stacks": "x" * 10_000})).to_json()
    assert told["outcome"] == outcome()
    assert (told["fault"], told["rank"], told["steps_repeated"]) == ("kill", 1, 13)


def test_a_row_tells_fault_attempts_downtime_repeated_steps_and_outcome() -> None:
    assert row(KILLED) == ["kill rank 1", "1 → 2", "yes", "1.3 s", "13", "signal, rank 1", "yes"]
    bare = Cost("agent", None, came_back=False, attempt_before=3)
    assert row(bare) == ["agent", "3", "no", "-", "-", "-", "-"]
    assert len(row(bare)) == len(COLUMNS)


def test_a_sentence_says_what_came_of_it() -> None:
    assert sentence(KILLED) == "back after 1.3 s, attempt 2; 13 steps repeated; told as signal, rank 1"
    assert sentence(replace(KILLED, named_rightly=False)).endswith("which is WRONG")
    lost = Cost("kill", 1, came_back=False, attempt_before=1, remark="the job failed: boom")
    assert sentence(lost) == "did not come back: the job failed: boom"
    server = Cost("server", None, True, 1, 1, downtime=0.0, remark="no server for 2.0 s")
    assert sentence(server) == "trained on all the while; no server for 2.0 s"


def test_the_job_came_back_only_if_every_planned_fault_has_struck() -> None:
    assert all_came_back([KILLED, KILLED], 2)
    assert not all_came_back([KILLED], 2)
    assert not all_came_back([KILLED, replace(KILLED, came_back=False)], 2)
