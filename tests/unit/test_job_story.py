"""Why each attempt began at its step, and what a job that recovered is called."""

from typing import Any

import pytest

from job_examples import a_job
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.attempt_history import AttemptSummary
from rekindle.contract.states import JobState
from rekindle_service.jobs.job_story import recovered, start_reasons


def attempt(number: int, **fields: Any) -> AttemptSummary:
    return AttemptSummary(number, run=1, started_at=10.0 * number, **fields)


@pytest.mark.parametrize(
    ("before", "fields", "reason"),
    [
        (None, {}, "from the start"),
        (None, {"resumed_from_step": 7}, "resumed from the snapshot of step 7 of the job that it continues"),
        (None, {"resumed_from_path": "a\x1b[2J.pt"}, "loaded its own checkpoint a.pt"),
        ({"last_step": 9, "snapshot_step": 5}, {"resumed_from_step": 5}, "resumed from the snapshot of step 5"),
        ({"last_step": 9, "snapshot_step": 5}, {"resumed_from_step": 8}, "resumed from the copy in memory of step 8"),
        ({"last_step": 9}, {"resumed_from_step": 8}, "resumed from the copy in memory of step 8"),
        ({}, {"resumed_from_step": 8}, "resumed from the snapshot of step 8"),
        (
            {"last_step": 9, "snapshot_step": 5},
            {"resumed_from_step": 3},
            "resumed from the snapshot of step 3; the one of step 5 could not be used",
        ),
        ({}, {"resumed_from_path": "out/last.pt"}, "resumed from its own checkpoint out/last.pt"),
        (
            {"last_step": 9},
            {"resumed_from_step": 8, "resumed_from_path": "out/8.ckpt"},
            "resumed from its own checkpoint out/8.ckpt",
        ),
        ({}, {"last_step": 4}, "from the start: no snapshot yet"),
        ({"snapshot_step": 5}, {"last_step": 4}, "from the start: the snapshot of step 5 was not loaded"),
        ({"snapshot_step": 5}, {}, ""),
    ],
    ids=lambda value: None,
)
def test_why_an_attempt_began_at_its_step(before: dict[str, Any] | None, fields: dict[str, Any], reason: str) -> None:
    earlier = [] if before is None else [attempt(1, **before)]
    last = attempt(len(earlier) + 1, **fields)
    assert start_reasons([*earlier, last])[last.number] == reason


def test_a_rollback_explains_the_attempt_after_it_and_no_other() -> None:
    attempts = [attempt(1, last_step=9, snapshot_step=5)]
    attempts += [attempt(number, last_step=9, snapshot_step=3, resumed_from_step=3) for number in (2, 3)]
    assert start_reasons(attempts, rollbacks=[15.0]) == {
        1: "from the start",
        2: "rolled back on request to the snapshot of step 3",
        3: "resumed from the snapshot of step 3",
    }


@pytest.mark.parametrize(
    ("restarts", "lost", "title"),
    [
        (0, 0, ""),
        (1, 1, "Recovered once, 1 step replayed"),
        (2, 8, "Recovered twice, 8 steps replayed"),
        (3, None, "Recovered 3 times"),
    ],
)
def test_a_job_that_recovered_says_how_often_and_at_what_cost(restarts: int, lost: int | None, title: str) -> None:
    last = None if lost is None else 10 + lost
    killed, done = (Outcome(klass, "") for klass in (OutcomeClass.SIGNAL, OutcomeClass.CANCELLED))
    attempts = [
        attempt(1, last_step=last, snapshot_step=10, outcome=killed),
        attempt(2, resumed_from_step=10, last_step=50, outcome=done),
        attempt(3, resumed_from_step=10),  # a rollback of 40 steps is no recovery
    ]
    assert recovered(a_job(state=JobState.RUNNING, restarts=restarts), attempts) == title
