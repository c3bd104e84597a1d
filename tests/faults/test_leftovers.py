"""Nothing of a run outlives it, whatever its processes do to get away. Every test here ends with that assertion."""

import os
import signal

from e2e.waiting import until
from rekindle.contract.states import JobIntent


def test_processes_that_escaped_from_their_rank_end_with_the_attempt(begin):
    run = begin("escape.py", "end", ranks=1, max_failures=1)
    assert run.finish() == "succeeded"
    assert run.classes() == ["success"]


def test_processes_that_escaped_end_with_a_cancel(begin):
    run = begin("escape.py", "stay", ranks=1)
    run.reach_step(1)
    assert len(run.processes()) >= 5
    run.want(JobIntent.CANCEL)
    assert run.finish() == "cancelled"


def test_what_a_killed_keeper_left_is_ended_by_the_next_one(begin):
    run = begin("escape.py", "stay", ranks=1)
    run.reach_step(1)
    run.kill_keeper()
    until(lambda: not run.rank_lives(0), "the rank has gone with its keeper", 5)
    assert run.processes(), "what escaped is still there, or this test shows nothing"
    run.want(JobIntent.CANCEL)
    run.start()
    assert run.finish() == "cancelled"
    assert run.classes() == ["keeper_lost"]


def test_processes_that_fork_on_and_on_are_caught(begin):
    run = begin("fork_bomb.py", ranks=1, max_failures=1)
    assert run.finish() == "succeeded"
    assert run.classes() == ["success"], "the rank itself ended with exit code 0"


def test_a_stopped_rank_dies_with_the_job(begin):
    run = begin("ddp.py")
    run.reach_step(2)
    run.signal_rank(1, signal.SIGSTOP)
    run.want(JobIntent.CANCEL)
    assert run.finish() == "cancelled"


def test_a_keeper_that_cannot_write_its_journal_says_so_and_leaves_nobody_behind(begin):
    run = begin("ddp.py")
    run.reach_step(2)
    rank_1 = run.pid(1)
    run.run_dir.journal.unlink()
    run.run_dir.journal.mkdir()  # as good as a full disk: every write fails
    os.kill(rank_1, signal.SIGKILL)
    assert run.leave() == 1
    assert "cannot continue" in run.run_dir.keeper_log.read_text()
    assert str(run.run_dir.journal) in run.run_dir.keeper_log.read_text()
    run.run_dir.journal.rmdir()
