"""A fault is a coordinate: rank, step, kind. Whatever happens to a rank, training ends as if nothing had happened."""

import os
import signal
import time
from contextlib import suppress
from itertools import pairwise

import pytest

from e2e.waiting import until
from rekindle.contract.job_options import LaunchMode
from rekindle.contract.processes import ProcessIdentity, parent_of
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.states import JobIntent
from rekindle.keeper.attempt.shutdown import SIGTERM_GRACE

EVERY = 5  # steps between two snapshots of ddp.py
STEPS = 30


def assert_nothing_is_lost(run, undisturbed, attempts):
    """Each attempt continued right after the latest snapshot of the one before; all logs are still there."""
    assert run.weights() == undisturbed
    assert run.attempt == attempts
    printed = run.steps(0)
    assert [len(steps) > 0 for rank in (0, 1) for steps in run.steps(rank)] == [True] * attempts * 2
    assert all(run.run_dir.attempt(number).agent_log.exists() for number in range(1, attempts + 1))
    assert printed[0][0] == 1
    assert printed[-1][-1] == STEPS
    for before, after in pairwise(printed):
        assert before == list(range(before[0], before[-1] + 1))
        assert 0 <= before[-1] - (after[0] - 1) <= EVERY
        assert (after[0] - 1) % EVERY == 0


def test_ranks_that_fail_in_every_way_cost_less_than_a_snapshot_interval(begin, undisturbed):
    run = begin("ddp.py", "1:7:raise", "0:12:kill", "1:17:segv", "0:22:exit", "1:27:vanish")
    assert run.finish() == "succeeded", run.all_logs()
    assert_nothing_is_lost(run, undisturbed, attempts=6)
    reported = [
        (one["class"], one["rank"], one["exit_code"], one["signal"], one["exception"]) for one in run.outcomes()
    ]
    assert reported == [
        ("user_error", 1, 1, None, "ValueError"),
        ("signal", 0, None, "SIGKILL", None),
        ("signal", 1, None, "SIGSEGV", None),
        ("user_error", 0, 3, None, "SystemExit"),
        ("user_error", 1, None, None, None),
        ("success", None, None, None, None),
    ]
    raised = run.outcomes()[0]
    source = (run.run_dir.code / "train.py").read_text().splitlines()
    assert (raised["file"], source[raised["line"] - 1].strip()) == ("train.py", 'raise ValueError("planted")')
    assert not list(run.run_dir.root.rglob("core*")), "no core file of the size of a rank's memory"


def test_a_job_that_is_killed_again_and_again_after_new_snapshots_is_always_retried(begin, undisturbed):
    run = begin("ddp.py", *(f"1:{step}:kill" for step in range(6, 30, 5)), max_failures=1)
    assert run.finish() == "succeeded", run.all_logs()
    assert_nothing_is_lost(run, undisturbed, attempts=6)
    assert run.classes() == ["signal"] * 5 + ["success"]


@pytest.mark.parametrize("from_spare", [True, pytest.param(False, marks=pytest.mark.short)])
@pytest.mark.parametrize("launch", [LaunchMode.TORCHRUN, LaunchMode.PROCESS])
def test_cuda_is_usable_in_each_rank_of_a_warm_start_and_of_a_retry(prepare, launch, from_spare):
    ranks = 1 if launch is LaunchMode.PROCESS else 2
    run = prepare("bad_fork.py", ranks=ranks, launch=launch)
    run.start(cold=not from_spare)
    assert run.finish() == "succeeded", run.all_logs()
    reports = [run.log(rank, attempt=attempt) for rank in range(ranks) for attempt in (1, 2)]
    assert reports == ["good fork\n"] * len(reports)


_INHERITABLE = """
from contextlib import suppress
inheritable = []
for fd in range(3, 200):
    with suppress(OSError):
        inheritable += [fd] if os.get_inheritable(fd) else []
print(inheritable)
"""


@pytest.mark.parametrize("launch", [LaunchMode.TORCHRUN, LaunchMode.PROCESS])
def test_a_rank_whose_parent_has_used_cuda_becomes_a_fresh_interpreter_and_no_attempt_fails_for_it(
    tmp_path, prepare, launch
):
    (tmp_path / "sklearn").mkdir()
    (tmp_path / "sklearn" / "__init__.py").write_text("import torch\ntorch.cuda.is_available()\n")
    ranks = 1 if launch is LaunchMode.PROCESS else 2
    run = prepare("bad_fork.py", ranks=ranks, launch=launch)
    script = run.run_dir.code / "train.py"
    script.write_text(script.read_text() + _INHERITABLE + "import sklearn\n")
    run.start(cold=True, PYTHONPATH=str(tmp_path), CUDA_VISIBLE_DEVICES="0")
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["user_error", "success"], "the planted error, and nothing else"
    for rank in range(ranks):
        assert run.log(rank, attempt=1) == "good fork\n"
        assert run.log(rank) == "good fork\n[]\n", "no descriptor is left to the processes that the script starts"
        assert "importing sklearn initialized CUDA" in run.status(rank).notice
        assert not run.log(rank, "stderr"), run.log(rank, "stderr")


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize(
    ("endings", "unmarked"),
    [
        (["_exit 0", "_exit 0"], [0, 1]),
        (["exec 0", "exec 0"], [0, 1]),
        (["_exit 0", "late"], [0]),
        (["late", "_exit 0"], [1]),
        (["late", "exec 0"], [1]),
    ],
)
def test_exit_code_0_is_a_success_whatever_ended_the_process(begin, endings, unmarked, warm):
    run = begin("endings.py", *endings, warm=warm)
    if "late" in endings:
        until(lambda: [record.rank for record in run.records(RecordType.RANK_EXITED)] == unmarked, "one has ended")
    assert run.finish() == "succeeded", run.all_logs()
    (outcome,) = run.outcomes()
    assert (outcome["class"], outcome["evidence"]["unmarked"]) == ("success", unmarked)
    exits = {record.rank: record.exit_code for record in run.records(RecordType.RANK_EXITED)}
    assert exits == {0: 0, 1: 0}


@pytest.mark.parametrize("ending", ["_exit 0", "exec 0"])
def test_exit_code_0_of_a_single_process_is_a_success(begin, ending):
    run = begin("endings.py", ending, ranks=1, launch=LaunchMode.PROCESS)
    assert run.finish() == "succeeded", run.all_logs()
    assert [one["evidence"].get("unmarked") for one in run.outcomes()] == [[0]]


@pytest.mark.parametrize("ending", ["_exit 7", "exec 7"])
def test_another_exit_code_is_a_failure_however_the_process_has_ended(begin, ending):
    run = begin("endings.py", "end", ending, max_failures=1)
    assert run.finish() == "failed", run.all_logs()
    (outcome,) = run.outcomes()
    assert (outcome["class"], outcome["rank"], outcome["exit_code"]) == ("user_error", 1, 7)


def test_cold_ranks_come_back_as_warm_ones_do(begin, undisturbed):
    run = begin("ddp.py", "1:7:raise", "0:12:kill", warm=False)
    assert run.finish() == "succeeded", run.all_logs()
    assert_nothing_is_lost(run, undisturbed, attempts=3)
    assert run.classes() == ["user_error", "signal", "success"]
    assert [one["rank"] for one in run.outcomes()] == [1, 0, None]


def test_two_ranks_that_fail_at_once_cost_one_attempt(begin, undisturbed):
    run = begin("ddp.py", "0:8:raise", "1:8:raise", "0:13:kill", "1:13:kill")
    assert run.finish() == "succeeded", run.all_logs()
    assert_nothing_is_lost(run, undisturbed, attempts=3)
    assert run.classes() == ["user_error", "signal", "success"]


def test_a_killed_agent_and_killed_keepers_cost_no_failure(begin, undisturbed):
    run = begin("ddp.py", max_failures=1)
    run.reach_step(6)
    run.kill_agent()
    run.reach_step(11, attempt=2)
    run.kill_keeper()
    run.start()
    run.reach_step(16, attempt=3)
    run.kill_keeper()
    run.start()
    assert run.finish() == "succeeded", run.all_logs()
    assert_nothing_is_lost(run, undisturbed, attempts=4)
    assert run.classes() == ["signal", "keeper_lost", "keeper_lost", "success"]
    assert run.outcomes()[0]["rank"] is None, "the agent's death is no rank's fault"


def test_a_keeper_that_gets_sigterm_drains_its_ranks_and_the_next_one_continues(begin, undisturbed):
    run = begin("ddp.py")
    run.reach_step(6)
    run.keeper.send_signal(signal.SIGTERM)
    assert run.leave() == 0
    assert run.records(RecordType.JOB_ENDED) == []
    run.start()
    assert run.finish() == "succeeded", run.all_logs()
    assert_nothing_is_lost(run, undisturbed, attempts=2)
    assert run.classes() == ["preempted", "success"]


@pytest.mark.parametrize("order", ["ranks first", "agent first", "keeper first"])
def test_a_machine_that_goes_down_may_stop_its_processes_in_any_order(begin, undisturbed, order):
    run = begin("ddp.py", max_failures=1)
    run.reach_step(6)
    ranks = [run.pid(rank) for rank in (0, 1)]
    agent, keeper = parent_of(ranks[0]), run.keeper.pid
    others = {"ranks first": [], "agent first": [agent], "keeper first": [keeper]}[order]
    for pid in [*others, *ranks]:
        with suppress(ProcessLookupError):  # ended by the signal before
            os.kill(pid, signal.SIGTERM)
    if keeper not in others:
        until(lambda: not any(run.rank_lives(rank) for rank in (0, 1)), "the ranks have ended")
        run.keeper.send_signal(signal.SIGTERM)
    assert run.leave() == 0
    assert run.records(RecordType.JOB_ENDED) == []
    run.start()
    assert run.finish() == "succeeded", run.all_logs()
    assert run.weights() == undisturbed
    assert run.classes() == ["preempted", "success"]


def test_ranks_that_lose_a_rank_to_a_shutdown_before_their_own_sigterm_have_not_failed(begin, undisturbed):
    run = begin("ddp.py", max_failures=1)
    run.reach_step(6)
    run.keeper.send_signal(signal.SIGSTOP)  # so that it sees all of it at once
    run.signal_rank(1, signal.SIGTERM)
    until(lambda: not any(run.rank_lives(rank) for rank in (0, 1)), "the other rank has lost its connection")
    run.keeper.send_signal(signal.SIGTERM)
    run.keeper.send_signal(signal.SIGCONT)
    assert run.leave() == 0
    assert run.records(RecordType.JOB_ENDED) == [], run.all_logs()
    run.start()
    assert run.finish() == "succeeded", run.all_logs()
    assert run.weights() == undisturbed
    assert run.classes() == ["preempted", "success"]


def test_a_keeper_that_does_not_run_while_it_waits_for_its_own_sigterm_sees_it_afterwards(begin):
    run = begin("ddp.py", max_failures=1)
    run.reach_step(6)
    agent = ProcessIdentity.of(parent_of(run.pid(0)))
    for rank in (0, 1):
        run.signal_rank(rank, signal.SIGTERM)
    until(lambda: not agent.alive(), "the keeper waits for nothing else")
    run.keeper.send_signal(signal.SIGSTOP)
    time.sleep(SIGTERM_GRACE + 1)
    run.keeper.send_signal(signal.SIGTERM)
    run.keeper.send_signal(signal.SIGCONT)
    assert run.leave() == 0
    assert run.classes() == ["preempted"]


def test_a_rank_that_saves_at_a_shutdown_is_not_killed_because_another_has_ended(begin):
    run = begin("stubborn.py", "save-slowly", max_failures=1)
    for rank in (0, 1):
        run.reach_step(1, rank=rank)
    for rank in (1, 0):
        run.signal_rank(rank, signal.SIGTERM)
    until(lambda: not run.rank_lives(0), "rank 0, which has no handler, has ended")
    run.keeper.send_signal(signal.SIGTERM)
    run.reach_record(RecordType.STOP_REQUESTED)
    (run.run_dir.snapshots / "may-save").touch()
    assert run.leave() == 0
    assert "saved" in run.log(1)
    assert run.classes() == ["preempted"]


def test_a_rank_that_somebody_ends_by_sigterm_has_failed(begin):
    run = begin("ddp.py", max_failures=1)
    run.reach_step(6)
    run.signal_rank(1, signal.SIGTERM)
    assert run.finish() == "succeeded", run.all_logs()
    first = run.outcomes()[0]
    assert (first["class"], first["rank"], first["signal"]) == ("signal", 1, "SIGTERM")


def test_a_second_keeper_leaves_the_job_to_the_first(begin):
    run = begin("ddp.py")
    run.reach_step(2)
    pids = [run.pid(rank) for rank in (0, 1)]
    first = run.keeper
    second = run.start()
    assert second.wait(20) == 0
    assert [run.pid(rank) for rank in (0, 1)] == pids
    run.keeper = first
    assert run.finish() == "succeeded"
    assert run.attempt == 1
    assert "leaving the job to it" in run.run_dir.keeper_log.read_text()


@pytest.mark.parametrize("warm", [True, False])
def test_a_cancelled_job_ends_at_once_where_its_ranks_let_it(begin, warm):
    run = begin("ddp.py", warm=warm)
    run.reach_step(2)
    run.want(JobIntent.CANCEL)
    assert run.finish() == "cancelled"
    assert run.classes() == ["cancelled"]
    assert run.steps(0)[0][-1] < STEPS
