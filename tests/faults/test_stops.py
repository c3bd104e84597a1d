"""How a job comes to its end before its ranks do: cancel, drain, a limit, and failures that no attempt cures."""

import os
import signal

import pytest

from e2e.waiting import until
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.states import JobIntent


def test_a_rank_that_ignores_sigterm_is_gone_soon_after_a_cancel(begin):
    run = begin("stubborn.py", "ignore", warm=False)
    run.reach_step(1)
    run.reach_step(1, rank=1)
    run.want(JobIntent.CANCEL)
    assert run.finish() == "cancelled"
    ends = {end.rank: (end.signal, end.killed) for end in run.records(RecordType.RANK_EXITED)}
    assert ends == dict.fromkeys((0, 1), ("SIGKILL", True))


def test_a_plain_script_that_saves_on_sigterm_and_exits_with_75_is_drained_and_continues_later(begin):
    run = begin("stubborn.py", "save", warm=False)
    run.reach_step(1)
    run.reach_step(1, rank=1)
    run.want(JobIntent.DRAIN)
    assert run.finish() == "queued"
    assert run.classes() == ["preempted"]
    assert run.outcomes()[0]["message"] == "Saved and stopped on request."
    assert sorted(path.name for path in run.run_dir.snapshots.iterdir()) == ["saved-0", "saved-1"]
    run.want(JobIntent.RUN, run=2)
    run.start()
    run.reach_step(1, attempt=2)
    run.want(JobIntent.CANCEL, run=2)
    assert run.leave() == 0
    assert [record.state for record in run.records(RecordType.JOB_ENDED)] == ["queued", "cancelled"]


def test_a_request_counts_though_the_server_died_before_it_sent_its_message(begin):
    """The ranks of a ``Run`` read the request themselves: without the keeper they would drain in every attempt."""
    run = begin("stubborn.py", "save", ranks=1)
    run.reach_step(1)
    run.run_dir.intent.unlink()
    os.mkfifo(run.run_dir.intent)  # which no reader may wait for
    run.want(JobIntent.DRAIN, message=False)
    assert run.finish() == "queued"
    assert run.classes() == ["preempted"]


@pytest.mark.parametrize(
    ("stop", "state", "klass"),
    [
        ("drain", "queued", "preempted"),
        ("cancel", "cancelled", "cancelled"),
        ("time_limit", "failed", "cancelled"),
        pytest.param("shutdown", None, "preempted", marks=pytest.mark.soak),
    ],
)
def test_a_script_that_saves_and_exits_with_0_on_sigterm_has_not_succeeded(begin, stop, state, klass):
    run = begin("stubborn.py", "exit-0", time_limit=5.0 if stop == "time_limit" else None)
    run.reach_step(1)
    run.reach_step(1, rank=1)
    match stop:
        case "drain" | "cancel":
            run.want(JobIntent(stop))
        case "shutdown":
            run.keeper.send_signal(signal.SIGTERM)
    assert run.leave() == 0
    assert [end.state for end in run.records(RecordType.JOB_ENDED)] == ([state] if state else [])
    (outcome,) = run.outcomes()
    assert outcome["class"] == klass
    assert "every rank exited with code 0 after SIGTERM" in outcome["message"]
    assert [record.ending for record in run.records(RecordType.STOP_REQUESTED)] == [stop]
    (run.run_dir.snapshots / "may-finish").touch()
    run.want(JobIntent.RUN, run=1 if stop == "shutdown" else 2)
    run.start()
    assert run.leave() == 0
    assert run.records(RecordType.JOB_ENDED)[-1].state == "succeeded"
    assert run.classes() == [klass, "success"]
    assert run.log(0).splitlines() == ["saved by attempt 1"], "it continues from what it has saved"


def test_the_machines_own_sigterm_to_ranks_that_exit_with_0_before_the_keeper_has_its_own_is_no_success(begin):
    run = begin("stubborn.py", "exit-0", warm=False)
    run.reach_step(1)
    run.reach_step(1, rank=1)
    run.keeper.send_signal(signal.SIGSTOP)  # it learns of both at once
    ranks = [ProcessIdentity.of(run.pid(rank)) for rank in (0, 1)]
    for rank in (0, 1):
        run.signal_rank(rank, signal.SIGTERM)
    until(lambda: not any(rank.alive() for rank in ranks), "both ranks have ended", 30)
    run.keeper.send_signal(signal.SIGTERM)
    run.keeper.send_signal(signal.SIGCONT)
    assert run.leave() == 0
    assert run.classes() == ["preempted"]
    assert run.records(RecordType.JOB_ENDED) == []


@pytest.mark.parametrize(
    ("how", "ranks", "max_failures", "failures", "reason"),
    [
        # known to have saved nothing
        ("raise-without-snapshot", 2, 9, 2, "the same exception twice"),
        # four attempts are more than a constant of three would give
        ("raise", 1, 4, 4, "4 failures in a row; whether there was progress is not known"),
        ("raise-another", 1, 2, 2, "max_failures is 2"),
    ],
)
def test_failures_that_no_attempt_cures_end_the_job(begin, how, ranks, max_failures, failures, reason):
    run = begin("stubborn.py", how, ranks=ranks, max_failures=max_failures)
    assert run.finish() == "failed"
    assert run.classes() == ["user_error"] * failures
    assert reason in run.records(RecordType.JOB_ENDED)[0].reason


def test_a_healthy_time_of_running_clears_the_count(begin):
    run = begin("stubborn.py", "raise-late", ranks=1, max_failures=2, healthy_seconds=0.5)
    assert run.finish() == "succeeded"
    assert run.classes() == ["user_error"] * 3 + ["success"]
    assert [record.delay // 1 for record in run.records(RecordType.RETRY_DECIDED)] == [1.0, 1.0, 2.0]


def test_a_script_that_saves_but_never_loads_is_slowed_down_and_stopped(begin):
    run = begin("stubborn.py", "save-and-die", ranks=1, max_failures=2)
    assert run.finish() == "failed"
    assert run.classes() == ["signal"] * 3
    assert [record.delay // 1 for record in run.records(RecordType.RETRY_DECIDED)] == [0.0, 1.0]
    end = run.records(RecordType.JOB_ENDED)[0].reason
    assert "the same ending at the same point 3 times, although the script saves: does it load its checkpoint?" in end


def test_the_same_exception_is_retried_for_as_long_as_the_script_saves_between(begin):
    """Such as a lost connection at epochs 5 and 40 of a script that loads its checkpoint."""
    run = begin("stubborn.py", "lose-connection", ranks=1, max_failures=1)
    assert run.finish() == "succeeded"
    assert run.classes() == ["user_error", "user_error", "success"]
    assert {one["exception"] for one in run.outcomes()} == {"ConnectionResetError", None}
    assert [record.delay for record in run.records(RecordType.RETRY_DECIDED)] == [0.0, 0.0]


def test_a_cancel_in_the_middle_of_a_retry_delay_is_obeyed_at_once(begin):
    run = begin("stubborn.py", "raise-another", ranks=1)
    run.reach_record(RecordType.RETRY_DECIDED, 2)
    due = run.records(RecordType.RETRY_DECIDED)[1].next_try_at
    run.want(JobIntent.CANCEL)
    assert run.finish() == "cancelled"
    assert run.records(RecordType.JOB_ENDED)[0].at < due
    assert run.attempt == 2


def test_a_script_that_asks_to_be_preempted_is_started_again_and_no_failure_is_counted(begin):
    run = begin("stubborn.py", "preempt-once", max_failures=1)
    assert run.finish() == "succeeded"
    assert run.classes() == ["preempted", "success"]


@pytest.mark.parametrize(
    ("source", "exception", "line"),
    [("import os\nprint(1\n", "SyntaxError", 2), ("import os\nimport no_such_module\n", "ModuleNotFoundError", 2)],
)
def test_a_script_that_cannot_even_begin_fails_once_and_names_its_line(prepare, source, exception, line):
    run = prepare("stubborn.py", "wait")
    (run.run_dir.code / "train.py").write_text(source)
    run.start()
    assert run.finish() == "failed"
    reported = [(one["class"], one["exception"], one["file"], one["line"]) for one in run.outcomes()]
    assert reported == [("user_error", exception, "train.py", line)]


@pytest.mark.parametrize(("child", "message"), [("loader", "DataLoader worker"), ("spawn", "process 0 terminated")])
def test_a_child_of_the_script_that_is_killed_twice_does_not_end_the_job(begin, child, message):
    """The exception is the same both times, at the same line; whether there was progress is not known."""
    run = begin("children.py", child, ranks=1)
    assert run.finish() == "succeeded"
    assert run.classes() == ["user_error", "user_error", "success"]
    first, second, _ = run.outcomes()
    assert (first["exception"], first["line"]) == (second["exception"], second["line"])
    assert message in first["message"]


def test_arguments_that_the_script_rejects_fail_once(prepare):
    run = prepare("stubborn.py", "--unknown", ranks=1)
    (run.run_dir.code / "train.py").write_text("import argparse\nargparse.ArgumentParser().parse_args()\n")
    run.start()
    assert run.finish() == "failed"
    assert [(one["exception"], one["exit_code"], one["retryable"]) for one in run.outcomes()] == [
        ("SystemExit", 2, False)
    ]


def test_a_script_that_is_gone_fails_once(begin):
    run = begin("stubborn.py", "remove-itself", ranks=1)
    assert run.finish() == "failed"
    assert [one["exception"] for one in run.outcomes()] == ["ValueError", "ScriptMissingError"]


def test_a_module_that_does_not_exist_fails_once(begin):
    run = begin("stubborn.py", kind="module", target="nowhere.train", ranks=1, warm=False)
    assert run.finish() == "failed"
    assert [one["exception"] for one in run.outcomes()] == ["ModuleNotFoundError"]


def test_a_keeper_killed_in_a_retry_delay_leaves_the_rest_to_the_next_one(begin):
    run = begin("stubborn.py", "raise-without-snapshot", max_failures=9)
    run.reach_record(RecordType.RETRY_DECIDED)
    run.kill_keeper()
    run.start()
    assert run.finish() == "failed"
    assert run.attempt == 2, "the first failure still counts"


_STARTS_LATE = """
import os, time
from pathlib import Path
if os.environ.get("RANK") == "1":
    while not (Path(os.environ["REKINDLE_SNAPSHOT_DIR"]) / "start").exists():
        time.sleep(0.01)
"""
_STOPS_LATE = """
import os, signal, sys, time
from pathlib import Path
def stop(*_):
    while os.environ["RANK"] == "0" and not (Path(os.environ["REKINDLE_SNAPSHOT_DIR"]) / "stop").exists():
        time.sleep(0.01)
    sys.exit(75)
signal.signal(signal.SIGTERM, stop)
print("step 1", flush=True)
while True:
    time.sleep(0.05)
"""


def test_a_rank_that_starts_only_after_a_drain_was_requested_gets_sigterm_too(prepare, tmp_path):
    run = prepare("stubborn.py", warm=False)
    (run.run_dir.code / "train.py").write_text(_STOPS_LATE)
    (tmp_path / "sitecustomize.py").write_text(_STARTS_LATE)
    run.start(cold=True, PYTHONPATH=str(tmp_path))
    run.reach_step(1)
    run.want(JobIntent.DRAIN)
    run.reach_record(RecordType.STOP_REQUESTED)
    (run.run_dir.snapshots / "start").touch()
    until(lambda: run.status(1) is not None and not run.rank_lives(1), "rank 1 has started and ended", 30)
    (run.run_dir.snapshots / "stop").touch()
    assert run.finish() == "queued"
    assert [end.rank for end in run.records(RecordType.RANK_EXITED) if end.killed] == []
