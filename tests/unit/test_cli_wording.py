"""Figures, outcomes and attempts are told so that a person understands them, and harmlessly."""

import re
from typing import Any

import pytest

from cli_examples import attempt, job, outcome
from rekindle_service.cli import wording
from rekindle_service.cli.complaint import problem_text
from rekindle_service.cli.demo import past_a_snapshot, shortfalls
from rekindle_service.cli.exit_codes import fate
from rekindle_service.cli.session import matching
from rekindle_service.cli.story import facts, lost_work, story
from rekindle_service.cli.watch import last_word, plain_report

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
KINDS = ("queued", "waiting", "starting", "training", "saving", "replayed")
NO_TIME: Any = {"goodput": None, "seconds": dict.fromkeys(KINDS, 0.0), "pieces": []}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (75, "1 min 15 s"), (3600, "1 h 0 min"), (90000, "1 d 1 h")],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert wording.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (170_000_000, "170.0 MB"), (10**15, "1000.0 TB")],
)
def test_a_size_is_told_in_a_fitting_unit(count: int, text: str) -> None:
    assert wording.size(count) == text


def test_steps_are_told_as_far_as_they_are_known() -> None:
    assert wording.steps(job()) == "step 120 of 400 (30%)"
    assert wording.steps(job(steps=None, progress=None)) == "step 120"
    assert wording.steps(job(step=None)) == ""


def test_the_rank_of_an_outcome_is_named_once() -> None:
    assert wording.outcome(outcome()) == "rank 1 was killed by SIGKILL"
    raised = outcome(message="ValueError: boom", file="train.py", line=42)
    assert wording.outcome(raised) == "rank 1: ValueError: boom (train.py:42)"
    told = outcome(message="Rank 1 raised ValueError at train.py:42: boom", file="train.py", line=42)
    assert wording.outcome(told) == "Rank 1 raised ValueError at train.py:42: boom"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"state": "queued", "queue_position": 2, "waiting_for": "a slot"}, "place 2 in the queue; waits for a slot"),
        ({"state": "queued", "intent": "hold"}, "held: `rekindle resume` lets it go on"),
        ({"state": "recovering", "outcome": outcome()}, "rank 1 was killed by SIGKILL"),
        ({"state": "failed", "outcome": outcome(message="no space left", rank=None)}, "no space left"),
        ({"state": "running", "phase": "evaluate"}, "evaluate"),
        ({"state": "running", "notice": "snapshot 40 skipped: checksum"}, "snapshot 40 skipped: checksum"),
    ],
)
def test_a_situation_is_what_a_person_would_ask_for(changes: dict[str, object], expected: str) -> None:
    assert wording.situation(job(**changes)) == expected


def test_a_recovering_job_says_when_the_next_try_is() -> None:
    text = wording.situation(job(state="recovering", next_try_at="2026-01-02T03:04:05Z"))
    assert re.fullmatch(r"next try at 2026-01-0\d \d\d:\d\d:\d\d", text)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"state": "succeeded"}, 0),
        ({"state": "failed"}, 1),
        ({"state": "cancelled"}, 3),
        ({"state": "queued", "intent": "hold"}, 4),
        ({"state": "queued"}, None),
        ({"state": "recovering"}, None),
        ({"state": "running", "intent": "cancel"}, None),
    ],
)
def test_the_fate_of_a_job_is_its_exit_code(changes: dict[str, object], code: int | None) -> None:
    assert fate(job(**changes)) == code


def test_a_line_is_told_for_a_change_and_each_tenth_of_the_way_only() -> None:
    first = job()
    assert plain_report(None, first) == "running: step 120 of 400 (30%); train"
    assert plain_report(first, job(step=130, progress=0.325)) is None
    assert plain_report(first, job(step=160, progress=0.4)) == "running: step 160 of 400 (40%); train"
    recovering = job(state="recovering", outcome=outcome(), restarts=1)
    assert plain_report(first, recovering) == (
        "recovering: step 120 of 400 (30%); restarts 1; rank 1 was killed by SIGKILL"
    )


def test_the_last_word_names_fate_attempts_and_time() -> None:
    over = job(state="succeeded", attempt=2, phase=None, ended_at="2026-01-02T03:07:08Z")
    assert last_word(over) == "digits succeeded after 2 attempts, in 3 min 2 s"
    assert last_word(job(state="queued", intent="hold", started_at=None)).startswith("digits held: held")


def test_the_story_tells_of_every_attempt_how_it_began_and_why_it_ended() -> None:
    second = attempt(2, state="running", ended_at=None, outcome=None, resumed_from_step=120)
    lines = list(story([attempt(reason="first failure after progress: again at once"), second]))
    assert lines[0].endswith("ranks 2 on cpu:0, cpu:1, from the start")
    assert lines[1:4] == [
        "    ended: signal: rank 1 was killed by SIGKILL",
        "    reached step 133; 13 steps lost, the newest snapshot is of step 120",
        "    then: first failure after progress: again at once",
    ]
    assert lines[4].endswith("resumed from step 120")
    assert lines[5] == "    running"


def test_lost_work_is_counted_from_where_the_next_attempt_really_began() -> None:
    first = attempt(last_step=133, snapshot_step=120)
    assert lost_work(first, attempt(2, resumed_from_step=100)).startswith("reached step 133; 33 steps lost")
    assert lost_work(first, None).startswith("reached step 133; 13 steps lost")
    assert lost_work(attempt(last_step=133, snapshot_step=None), None) == "reached step 133"
    assert lost_work(attempt(last_step=None), None) == ""


def test_facts_leave_out_what_is_not_known() -> None:
    labels = dict(facts(job(snapshot_step=None, started_at=None), NO_TIME, "/home/me/code"))
    assert labels["runs"] == "train.py --lr 0.1"
    assert labels["progress"] == "step 120 of 400 (30%), epoch 1 of 4, 10 steps/s, about 28 s left"
    assert not {"goodput", "time", "snapshot", "started", "ended"} & labels.keys()


def test_the_time_of_a_job_is_told_with_the_training_first_and_without_what_took_none() -> None:
    seconds = {"queued": 3.0, "waiting": 0.2, "starting": 2.0, "training": 125.0, "saving": 0.0, "replayed": 4.4}
    labels = dict(facts(job(), {"goodput": 0.95, "seconds": seconds, "pieces": []}, "/home/me/code"))
    assert labels["goodput"] == "95% of the time trained"
    assert labels["time"] == "training 2 min 5 s, done again 4 s, starting 2 s, queued 3 s"


def test_a_job_is_meant_by_number_then_by_name_then_by_the_beginning_of_its_id() -> None:
    newest, older = job(id="bbbbbbbbbb", number=4), job(id="aaaaaaaaaa", number=3)
    jobs = [newest, older, job(id="aaaabbbbbb", number=2, name="3")]
    assert matching(jobs, "3") == [older]
    assert matching(jobs, "#4") == [newest]
    assert matching(jobs, "digits") == [newest]
    assert matching(jobs, "bbbb") == [newest]
    assert len(matching(jobs, "aaaa")) == 2
    assert matching(jobs, "aaa") == []


def test_a_problem_names_field_rule_value_and_way_out() -> None:
    text = problem_text(
        {
            "title": "The request is not valid",
            "status": 422,
            "detail": "1 field is wrong",
            "errors": [{"field": "ranks", "rule": "at most 2, the slots", "value": 5, "hint": "REKINDLE_CPU_SLOTS"}],
        }
    )
    assert text.plain == (
        "error: not accepted\n  ranks: at most 2, the slots\n    given: 5\n    hint:  REKINDLE_CPU_SLOTS"
    )


def test_no_text_of_a_user_reaches_the_terminal_as_it_is() -> None:
    evil = "\x1b]52;c;AAAA\x07\x1b[2J\x9b31m[red]x"
    bad = job(
        name=evil, phase=evil, notice=evil, waiting_for=evil, args=[evil], devices=[evil], outcome=outcome(message=evil)
    )
    told = [
        *(wording.situation({**bad, "state": state}) for state in ("queued", "recovering", "failed", "running")),
        *(value for _, value in facts(bad, NO_TIME, evil)),
        *story([attempt(outcome=outcome(message=evil, file=evil), reason=evil, devices=[evil])]),
        plain_report(None, bad) or "",
        last_word(bad),
        problem_text({"detail": evil, "errors": [{"field": evil, "rule": evil, "value": evil, "hint": evil}]}).plain,
    ]
    for text in told:
        assert not CONTROLS.search(text.replace("\n", "")), text
    assert any("[red]x" in text for text in told)


def test_the_demo_kills_only_when_work_can_be_lost_and_some_is_saved() -> None:
    assert past_a_snapshot(job(step=120, snapshot_step=100))
    assert not past_a_snapshot(job(step=100, snapshot_step=100))
    assert not past_a_snapshot(job(step=120, snapshot_step=0))
    assert not past_a_snapshot(job(step=120, snapshot_step=None))
    assert not past_a_snapshot(job(state="recovering", step=120, snapshot_step=100))


def test_the_demo_admits_whatever_it_could_not_show() -> None:
    over = job(state="succeeded", restarts=1)
    attempts = [attempt(), attempt(2, resumed_from_step=120)]
    assert shortfalls(over, attempts, 0.97) == []
    assert "it is failed" in shortfalls({**over, "state": "failed"}, attempts, 0.97)[0]
    assert "there was none" in shortfalls({**over, "restarts": 0}, attempts, 0.97)[0]
    assert "none did" in shortfalls(over, [attempt(), attempt(2, resumed_from_step=0)], 0.97)[0]
    assert "it is 0.9" in shortfalls(over, attempts, 0.9)[0]
    assert "it is None" in shortfalls(over, attempts, None)[0]
