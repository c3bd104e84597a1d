"""Jobs of one process: torchrun is not involved, and what the script starts itself is the script's own world."""

import pytest

from e2e.waiting import until
from rekindle.contract.job_options import LaunchMode, SnapshotPolicy, TargetKind
from rekindle.contract.run_dir.journal import RecordType

PROCESS = {"launch": LaunchMode.PROCESS, "ranks": 1, "devices_per_rank": 2}


@pytest.mark.parametrize("warm", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_one_process_holds_all_devices_and_a_kill_restarts_it(begin, warm):
    run = begin("process_tree.py", "spawn", "wait", "exit", warm=warm, **PROCESS)
    until(lambda: run.log(0).count(" of 2 counts 2") == 2, "both children train", 60)
    run.signal_rank(0)
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["signal", "user_error", "success"]
    assert run.outcomes()[1]["exit_code"] == 3
    assert "Rank 0 was killed by SIGKILL" in run.outcomes()[0]["message"]
    started = run.records(RecordType.ATTEMPT_STARTED)
    assert [(record.world_size, record.devices) for record in started] == [(1, ["cpu:0", "cpu:1"])] * 3
    for attempt in (1, 3):
        assert "'RANK': None, 'WORLD_SIZE': None, 'TORCHELASTIC_RUN_ID': None" in run.log(0, attempt=attempt)
    assert run.log(0).endswith("finished\n")


def test_a_killed_child_is_a_failure_of_its_parent_and_a_killed_agent_takes_all_along(begin):
    run = begin("process_tree.py", "fork", "kill", **PROCESS)
    run.reach_record(RecordType.ATTEMPT_ENDED)
    assert run.outcomes()[0]["exception"] == "RuntimeError"
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["user_error", "success"]


@pytest.mark.parametrize(
    ("how", "warm"), [("spawn", True), ("fork", True), pytest.param("spawn", False, marks=pytest.mark.soak)]
)
def test_processes_that_a_rank_of_torchrun_starts_form_a_group_at_their_own_address(begin, how, warm):
    run = begin("process_tree.py", how, warm=warm, ranks=1, hang_timeout=30)
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["success"]
    assert run.log(0).count(" of 2 counts 2") == 2


def test_a_script_for_the_launcher_of_old_learns_its_local_rank(begin):
    run = begin("old_launcher.py", "--epochs", "3")
    assert run.finish() == "succeeded", run.all_logs()
    assert [run.log(rank) for rank in (0, 1)] == ["local rank 0 epochs 3\n", "local rank 1 epochs 3\n"]


def test_the_recipe_dp_computes_on_both_of_its_devices_before_and_after_a_kill(begin):
    words = ("--epochs", "2", "--batch-size", "240", "--model", "lenet", "--throttle", "0.1")
    recipe = {"kind": TargetKind.RECIPE, "target": "dp", "snapshot": SnapshotPolicy(every_steps=1)}
    run = begin("ddp.py", *words, **recipe, **PROCESS)
    until(lambda: ((run.status(0) is not None and run.status(0).snapshot_step) or 0) >= 2, "two snapshots", 120)
    run.signal_rank(0)
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["signal", "success"]
    ended = run.records(RecordType.ATTEMPT_ENDED)[-1]
    assert ended.resumed_from_step >= 2
    assert ended.last_step == 12
    for attempt in (1, 2):
        assert "2 devices in one process" in run.log(0, attempt=attempt)
