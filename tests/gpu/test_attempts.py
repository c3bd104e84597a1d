"""Attempts on GPUs: how ranks start, how fast they come back, and what a retry finds. On a CPU as far as that goes."""

import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.waiting import until
from gpu.conftest import GPUS, SCRIPTS
from rekindle.contract.environment import clean_environment
from rekindle.contract.job_options import LaunchMode
from rekindle.contract.run_dir.journal import RecordType

KILLS = 3


@pytest.mark.parametrize("launch", [LaunchMode.TORCHRUN, LaunchMode.PROCESS])
def test_a_warm_start_and_a_retry_use_the_gpu_and_no_attempt_fails_for_it(begin, found, launch):
    ranks = 1 if launch is LaunchMode.PROCESS else 2
    run = begin("touch.py", ranks=ranks, launch=launch)
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["user_error", "success"], run.all_logs()
    for rank in range(ranks):
        for attempt in (1, 2):
            assert run.log(rank, attempt=attempt).startswith("good fork, used "), run.all_logs()
            assert run.status(rank).notice is None, "no rank had to replace itself"
    retried = run.records(RecordType.RETRY_DECIDED)[0].next_try_at
    used = [float(run.log(rank, attempt=2).rsplit(maxsplit=1)[1]) for rank in range(ranks)]
    found(f"retry to first result, {launch}", max(used) - (retried - time.time() + time.monotonic()))


def steps(directory: Path) -> list[list[float]]:
    """The times of the steps of each rank in seconds of CLOCK_MONOTONIC."""
    return [
        [float(line.split()[1]) for line in (directory / f"steps-{rank}").read_text().splitlines()]
        for rank in range(2)
        if (directory / f"steps-{rank}").exists()
    ]


def kill_and_measure(directory: Path, alive) -> list[float]:
    """Kill rank 1 again and again; seconds from each kill until both ranks have finished a step after it."""
    downtimes = []
    for _ in range(KILLS):
        count = len(steps(directory)[1]) if len(steps(directory)) == 2 else 0
        until(lambda count=count: len(steps(directory)) == 2 and len(steps(directory)[1]) > count + 10, alive(), 120)
        pid = int((directory / "steps-1").read_text().splitlines()[-1].split()[0])
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        until(lambda killed=killed: all(times[-1] > killed + 0.1 for times in steps(directory)), alive(), 120)
        after = [next(time for time in times if time > killed + 0.1) for times in steps(directory)]
        downtimes.append(max(after) - killed)
    (directory / "end").touch()
    return downtimes


def test_a_killed_rank_costs_less_than_under_bare_torchrun(begin, found, compares, tmp_path):
    ours, bare = tmp_path / "ours", tmp_path / "bare"
    for directory in (ours, bare):
        directory.mkdir()
    run = begin("steps.py", str(ours), max_failures=2 * KILLS, healthy_seconds=0.0)
    mine = kill_and_measure(ours, run.all_logs)
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["signal"] * KILLS + ["success"]
    if not compares:
        return
    argv = ["--standalone", "--nproc-per-node=2", f"--max-restarts={KILLS}", str(SCRIPTS / "steps.py"), str(bare)]
    environment = {**clean_environment(os.environ), "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with (bare / "log").open("wb") as log:
        torchrun = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *argv], env=environment, stdout=log, stderr=log
        )
        try:
            theirs = kill_and_measure(bare, (bare / "log").read_text)
            assert torchrun.wait(60) == 0, (bare / "log").read_text()
        finally:
            torchrun.kill()
    found("kill to next step, rekindle", statistics.median(mine))
    found("kill to next step, torchrun", statistics.median(theirs))
    assert statistics.median(mine) < statistics.median(theirs)


@pytest.mark.gpu
def test_a_retry_does_not_meet_the_memory_of_the_attempt_before(begin, found):
    run = begin("memory.py", ranks=1)
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["signal", "success"], run.all_logs()
    times = [float(run.log(0, attempt=attempt).rsplit(maxsplit=1)[1]) for attempt in (1, 2)]
    found("killed with 60 % of the memory to having it again", times[1] - times[0])


def test_a_run_with_mixed_precision_workers_and_compilation_ends_with_the_same_bits_after_a_kill(begin):
    undisturbed, killed = (begin("exact.py", step, ranks=1) for step in ("0", "13"))
    assert [run.finish() for run in (undisturbed, killed)] == ["succeeded"] * 2, killed.all_logs()
    assert killed.classes() == ["signal", "success"]
    assert killed.weights() == undisturbed.weights()


@pytest.mark.gpu(cards=2)
def test_two_cards_train_over_nccl_and_come_back(begin, tmp_path):
    run = begin("steps.py", str(tmp_path), max_failures=2 * KILLS, healthy_seconds=0.0)
    kill_and_measure(tmp_path, run.all_logs)
    assert run.finish() == "succeeded", run.all_logs()


def test_there_are_as_many_gpus_as_the_driver_says(found):
    found("GPUs", GPUS)
    nvml = pytest.importorskip("pynvml")
    if GPUS == 0:
        pytest.skip("needs 1 GPU, and there are 0")
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount() >= GPUS
    nvml.nvmlShutdown()
