"""Figures, outcomes and attempts are shown so that a person understands them, and sanitized."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from cli_examples import CONTROLS, NO_TIME, attempt, job, outcome, printed
from rekindle_service.cli import formatting
from rekindle_service.cli.commands.demo import is_past_snapshot, shortfalls
from rekindle_service.cli.commands.follow import change_line, summary
from rekindle_service.cli.commands.show import facts, history, job_lines
from rekindle_service.cli.help_and_errors import format_problem, print_error
from rekindle_service.cli.terminal import exit_code_for, note, print_line

A_RANK: Any = {"rank": 0, "state": "running", "host": None, "without_progress": None, "hang_timeout": None}


def test_a_duration_has_its_two_largest_units_and_a_size_a_fitting_one() -> None:
    seconds = (0, 59.4, 59.6, 75, 3600, 90000)
    texts = ["0 s", "59 s", "1 min 0 s", "1 min 15 s", "1 h 0 min", "1 d 1 h"]
    assert [formatting.duration(each) for each in seconds] == texts
    counts = (0, 999, 1000, 170_000_000, 10**15)
    assert [formatting.size(count) for count in counts] == ["0 B", "999 B", "1.0 kB", "170.0 MB", "1000.0 TB"]


def test_progress_is_shown_as_far_as_it_is_known() -> None:
    assert formatting.progress(job()) == "step 120 of 400 (30%)"
    assert formatting.progress(job(steps=None, progress=None)) == "step 120"
    assert formatting.progress(job(step=None)) == ""
    assert formatting.progress(job(step=None, estimated_step=120)) == "about step 120, 30% (estimate)"
    assert formatting.progress(job(step=None, estimated_epoch=3)) == "about 30% (estimate)"


def test_a_row_has_the_step_else_the_epoch_that_was_printed_and_when_the_job_ended() -> None:
    shown = [
        job(),
        job(step=None, estimated_step=7, estimated_epoch=1),
        job(step=None, estimated_epoch=8),
        job(step=None),
    ]
    assert [formatting.job_cells(each)["STEP"] for each in shown] == ["120/400", "~7", "epoch ~8", "-"]
    ended = (datetime.now(UTC) - timedelta(hours=9, minutes=5)).isoformat()
    assert [formatting.job_cells(job(ended_at=each))["ENDED"] for each in (None, ended)] == ["-", "9 h"]


def test_the_rank_of_an_outcome_is_named_once() -> None:
    assert formatting.outcome(outcome()) == "rank 1 was killed by SIGKILL"
    raised = outcome(message="ValueError: boom", file="train.py", line=42)
    assert formatting.outcome(raised) == "rank 1: ValueError: boom (train.py:42)"
    complete = outcome(message="Rank 1 raised ValueError at train.py:42: boom", file="train.py", line=42)
    assert formatting.outcome(complete) == "Rank 1 raised ValueError at train.py:42: boom"


def test_a_status_line_has_the_queue_the_next_try_the_outcome_the_phase_or_a_notice() -> None:
    waits = {"queue_position": 2, "reason": "waiting for slots"}
    assert status_line(state="queued", **waits) == "waiting for slots; position 2 in the queue"
    assert status_line(state="queued", intent="hold") == "On hold. Start it: `rekindle resume digits`"
    assert status_line(state="recovering", outcome=outcome()) == "rank 1 was killed by SIGKILL"
    now = datetime.now(UTC)
    later, earlier = (now + timedelta(days=2)).isoformat(), (now - timedelta(seconds=1)).isoformat()
    assert re.fullmatch(r"retry at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", status_line(state="recovering", next_try_at=later))
    assert status_line(state="recovering", next_try_at=earlier) == "", "a time in the past is no time of a retry"
    lost = outcome(message="The coordinator ended without a record; the ranks ran on n1, n2.", rank=None)
    waits = status_line(state="recovering", outcome=lost, waiting_for="Slurm job 17 waits")
    assert waits == "The coordinator ended without a record; the ranks ran on n1, n2; Slurm job 17 waits"
    ending = {"state": "COMPLETING", "reason": "Slurm is ending job 17: it stops what still runs on its nodes"}
    assert status_line(slurm=ending) == ending["reason"]
    assert status_line(state="failed", outcome=outcome(message="no space left", rank=None)) == "no space left"
    assert status_line(phase="evaluate") == "evaluate"
    assert status_line(notice="snapshot 40 skipped: checksum") == "snapshot 40 skipped: checksum"


def test_a_job_without_progress_is_stalled_and_says_for_whom_it_waits_and_until_when() -> None:
    since, hung_at = (datetime.now(UTC) + timedelta(seconds=each) for each in (-12.2, 18.4))
    found = {"sentence": "rank 1 sleeps", "since": since.isoformat(), "hung_at": hung_at.isoformat(), "rank": 1}
    stalled = job(state="running", stalled=found)
    assert formatting.state_name(stalled) == "stalled"
    assert formatting.stalled(stalled) == "Stalled for 12 s: rank 1 sleeps; counts as hung in 18 s"
    assert ("status", formatting.stalled(stalled)) in facts(stalled, NO_TIME, "")
    over = job(state="running", stalled={**found, "hung_at": since.isoformat()})
    assert formatting.stalled(over).endswith("; counts as hung now")
    assert formatting.stalled(job()) == ""


def status_line(**changes: object) -> str:
    return formatting.status_line(job(**changes))


def test_the_outcome_of_a_job_is_its_exit_code() -> None:
    codes = {"succeeded": 0, "failed": 1, "cancelled": 3, "queued": None, "recovering": None}
    assert {state: exit_code_for(job(state=state)) for state in codes} == codes
    assert exit_code_for(job(state="queued", intent="hold")) == 4
    assert exit_code_for(job(state="running", intent="cancel")) is None


def test_a_line_is_printed_only_for_a_change_and_each_tenth_of_the_steps() -> None:
    first = job()
    assert change_line(None, first) == "running: step 120 of 400 (30%); train"
    assert change_line(first, job(step=130, progress=0.325)) is None
    assert change_line(first, job(step=160, progress=0.4)) == "running: step 160 of 400 (40%); train"
    recovering = job(state="recovering", outcome=outcome(), restarts=1)
    assert change_line(first, recovering) == (
        "recovering: step 120 of 400 (30%); restarts 1; rank 1 was killed by SIGKILL"
    )


def test_the_summary_names_outcome_attempts_and_time() -> None:
    over = job(state="succeeded", attempt=2, phase=None, ended_at="2026-01-02T03:07:08Z")
    assert summary(over) == "digits succeeded after 2 attempts, in 3 min 2 s"
    assert summary(job(state="queued", intent="hold", started_at=None)).startswith("digits held: On hold.")


def test_the_history_shows_how_every_attempt_started_and_why_it_ended() -> None:
    second = attempt(2, state="running", ended_at=None, outcome=None, start="resumed from the snapshot of step 120")
    lines = list(history([attempt(reason="first failure after progress: again at once"), second]))
    assert lines[0].endswith("ranks 2 on cpu:0, cpu:1, from the start")
    assert lines[1:4] == [
        "    ended: signal: rank 1 was killed by SIGKILL",
        "    reached step 133; 13 steps replayed",
        "    then: first failure after progress: again at once",
    ]
    assert lines[4].endswith("resumed from the snapshot of step 120")
    assert lines[5] == "    running"
    now = datetime.now(UTC)
    for ahead, shown in ((3600, True), (-1, False)):
        retried = attempt(next_try_at=(now + timedelta(seconds=ahead)).isoformat())
        assert any("retry at" in line for line in history([retried])) == shown
    assert "    reached step 133" in history([attempt(replayed_steps=None)])
    assert not any("reached" in line for line in history([attempt(last_step=None)]))


def test_facts_omit_what_is_not_known_and_times_that_took_none() -> None:
    labels = dict(facts(job(snapshot_step=None, started_at=None), NO_TIME, "/home/me/code"))
    assert labels["runs"] == "train.py --lr 0.1"
    assert labels["progress"] == "step 120 of 400 (30%), epoch 1 of 4, 10 steps/s, about 28 s left"
    assert not {"goodput", "time", "snapshot", "started", "ended"} & labels.keys()
    seconds = {
        "queued": 3.0,
        "waiting": 0.2,
        "starting": 2.0,
        "training": 125.0,
        "saving": 0.0,
        "replayed": 4.4,
        "stalled": 0.0,
    }
    labels = dict(facts(job(), {"goodput": 0.95, "seconds": seconds, "intervals": []}, "/home/me/code"))
    assert labels["goodput"] == "95% of the time trained"
    assert labels["time"] == "training 2 min 5 s, replayed 4 s, starting 2 s, queued 3 s"


def test_the_latest_values_are_among_the_facts() -> None:
    metrics = [{"name": "loss", "value": 0.41234, "epoch": 3, "step": 3}, {"name": "acc", "value": None}]
    assert dict(facts(job(), NO_TIME, "", metrics=metrics))["metrics"] == "loss 0.4123, acc nan at epoch 3"
    many = [{"name": f"m{number}", "value": 1.0, "epoch": 0, "step": 7} for number in range(8)]
    assert dict(facts(job(), NO_TIME, "", metrics=many))["metrics"].endswith("m5 1 at step 7, and 2 more")


def test_an_unusual_time_without_progress_is_among_the_facts() -> None:
    silent = job(step=None, estimated_step=None, epoch=None, estimated_epoch=None, steps_per_second=None)
    for step, seconds, timeout, text in (
        (None, None, 300.0, None),
        (None, 14.0, 300.0, None),
        (None, 130.0, 300.0, "no progress for 2 min 10 s, counts as hung after 5 min 0 s"),
        (5, 29.0, 300.0, None),
        (5, 16.0, 25.0, "no progress for 16 s, counts as hung after 25 s"),
        (None, 16.0, None, None),
    ):
        rank = {**A_RANK, "step": step, "without_progress": seconds, "hang_timeout": timeout}
        labels = dict(facts({**silent, "eta_seconds": None}, NO_TIME, "/home/me/code", [rank, rank]))
        assert (labels.get("progress") == text) if text else labels["progress"].startswith("not known: print"), rank


def test_a_job_on_several_nodes_shows_which_ranks_each_has_in_which_state() -> None:
    states = ["running"] * 6 + ["failed", "running"]
    ranks: list[Any] = [
        {**A_RANK, "rank": number, "state": state, "host": f"n{number // 4 + 1}"} for number, state in enumerate(states)
    ]
    text = str(dict(facts(job(), NO_TIME, "", ranks))["nodes"])
    assert text.splitlines() == ["n1: ranks 0-3 running", "n2: ranks 4, 5, 7 running, rank 6 failed"]
    assert "nodes" not in dict(facts(job(), NO_TIME, "", ranks[:4])), "on one node there is nothing to tell apart"
    lines = printed(80, *job_lines(Console(width=80), job(warnings=[]), [], NO_TIME, "", {"kind": "none"}, ranks))
    (index,) = (index for index, line in enumerate(lines) if line.startswith("  nodes "))
    assert [line[12:] for line in lines[index : index + 2]] == text.splitlines()


def test_excluded_nodes_and_what_needs_attention_are_among_the_facts() -> None:
    slurm = {**dict.fromkeys(("partition", "account", "qos", "job_id", "state")), "hosts": [], "excluded": {"n3": "no"}}
    slurm["reason"] = "The clock of n1 is 5 s ahead: run an NTP client there."
    labels = dict(facts(job(slurm=slurm, nodes={"min": 1, "max": 2}, state="running"), NO_TIME, ""))
    assert (labels["excluded"], labels["status"]) == ("n3: no", slurm["reason"])


def test_a_problem_names_field_rule_value_and_hint() -> None:
    error = {"field": "ranks", "rule": "at most 2, the slots", "value": 5, "hint": "REKINDLE_CPU_SLOTS"}
    problem = {"title": "The request is not valid", "status": 422, "detail": "1 field is wrong", "errors": [error]}
    assert format_problem(problem).plain == (
        "error: request rejected\n  ranks: at most 2, the slots\n    given: 5\n    hint:  REKINDLE_CPU_SLOTS"
    )


def test_no_text_of_a_user_reaches_the_terminal_unsanitized(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]52;c;AAAA\x07\x1b[2J\x9b31m[red]x"
    fields = dict.fromkeys(("name", "phase", "notice", "waiting_for", "reason"), evil)
    bad = job(**fields, args=[evil], devices=[evil], outcome=outcome(message=evil))
    problem = format_problem({"detail": evil, "errors": [{"field": evil, "rule": evil, "value": evil, "hint": evil}]})
    tried = [attempt(outcome=outcome(message=evil, file=evil), reason=evil, devices=[evil], args=[evil])]
    for state in ("queued", "recovering", "failed", "running"):
        found = {**bad, "state": state, "warnings": [evil]}
        lines = job_lines(Console(width=80), found, tried, NO_TIME, evil, {"kind": "none"})
        assert not CONTROLS.search("\n".join(printed(80, *lines)).replace("\n", ""))
        print_line(summary(found))
        note(change_line(None, found) or "")
    print_error(problem)
    shown = "".join(capsys.readouterr())
    assert not CONTROLS.search(shown)
    assert "[red]x" in shown


def test_the_demo_kills_only_after_a_snapshot_and_before_the_next() -> None:
    assert is_past_snapshot(job(step=120, snapshot_step=100))
    assert not is_past_snapshot(job(step=100, snapshot_step=100))
    assert not is_past_snapshot(job(step=120, snapshot_step=0))
    assert not is_past_snapshot(job(step=120, snapshot_step=None))
    assert not is_past_snapshot(job(state="recovering", step=120, snapshot_step=100))


def test_the_demo_reports_what_it_could_not_show() -> None:
    over = job(state="succeeded", restarts=1)
    attempts = [attempt(), attempt(2, resumed_from_step=120)]
    assert shortfalls(over, attempts, 0.97) == []
    assert "it is failed" in shortfalls({**over, "state": "failed"}, attempts, 0.97)[0]
    assert "there was none" in shortfalls({**over, "restarts": 0}, attempts, 0.97)[0]
    assert "none did" in shortfalls(over, [attempt(), attempt(2, resumed_from_step=0)], 0.97)[0]
    assert "it is 0.9" in shortfalls(over, attempts, 0.9)[0]
    assert "it is None" in shortfalls(over, attempts, None)[0]
