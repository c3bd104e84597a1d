"""Ranks that wait in standby: a failure does not cost the start of the script, and the result is the same, bit by bit.

``--soak N`` kills N times.
"""

import os
import re
import signal
import statistics
import time
from pathlib import Path

import pytest

from e2e.waiting import until
from rekindle.contract.job_options import LaunchMode, SnapshotPolicy
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.standby_world import HeldRank
from rekindle.contract.run_dir.step_records import StepSamples
from rekindle.contract.states import JobIntent

_START = 3.0  # seconds of a script
_OLD = (1e9, 1e9)  # seconds since the epoch: before the job


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir()
    for number in range(3):
        (directory / f"{number}.txt").write_text("1.5")
    for path in (*directory.iterdir(), directory):
        os.utime(path, _OLD)
    return directory


def held(run, ranks: int = 2) -> list[HeldRank]:
    """Wait until the ranks of the next attempt wait at their first effect."""
    began = (run.run_dir.attempt(run.attempt).root / "arguments.json").stat().st_mtime

    def find() -> list[HeldRank] | None:
        files = [run.run_dir.standby_rank(rank) for rank in range(ranks)]
        if not all(file.exists() and file.stat().st_mtime >= began for file in files):
            return None
        return [each for file in files if (each := read_record(file, HeldRank)) is not None]

    return until(find, "the ranks of the next attempt are held", 60)


def kill_and_come_back(run, rank: int = 0) -> float:
    """Seconds from the kill of ``rank`` to the next step of rank 0."""
    attempt = run.attempt
    began = time.monotonic()
    run.signal_rank(rank)
    until(lambda: run.attempt > attempt and "step " in run.log(0), "the next attempt has trained", 60)
    return time.monotonic() - began


def weights(run) -> dict[str, str]:
    """By step, the digests that rank 0 has printed in all attempts."""
    texts = [run.log(0, attempt=number) for number in range(1, run.attempt + 1)]
    return dict(pair for text in texts for pair in re.findall(r"^weights (\d+) ([0-9a-f]{64})$", text, re.MULTILINE))


def test_kills_cost_no_start_of_the_script_and_change_no_bit(prepare, data, request):
    kills = request.config.getoption("--soak") or 3
    run = prepare("slow_start.py", str(_START), "1000000", str(data), "0.1", standby=True, max_failures=kills)
    run.start()
    seconds = []
    for number in range(kills):
        run.reach_step(6, attempt=run.attempt)
        held(run)
        seconds.append(kill_and_come_back(run, number % 2))
    run.reach_step(8, attempt=run.attempt)
    samples = until(
        lambda: read_record(run.run_dir.attempt(run.attempt).rank(1).steps, StepSamples), "the steps are measured", 60
    )
    assert {"forward", "backward", "optimizer"} <= samples.samples[-1].seconds.keys(), "also of ranks that stood by"
    found = weights(run)
    run.want(JobIntent.CANCEL)
    assert run.finish() == "cancelled"
    assert run.classes() == ["signal"] * kills + ["cancelled"]
    assert "discarded" not in run.run_dir.keeper_log.read_text()
    print(f"seconds from a kill to the next step: {sorted(round(each, 2) for each in seconds)}")
    assert statistics.median(seconds) < _START, "each attempt has begun where its ranks were held"
    for number in range(1, kills + 2):  # what it has printed before its attempt is in the log of that, too
        assert run.log(0, attempt=number).splitlines()[:2] == ["begins", "indexed 3 scale 1.5"]
    undisturbed = prepare("slow_start.py", "0", str(max(map(int, found))), str(data), "0")
    undisturbed.start()
    assert undisturbed.finish() == "succeeded"
    assert found.items() <= weights(undisturbed).items()


def test_a_run_of_rekindle_continues_from_its_snapshot_in_the_attempt_that_has_begun(prepare):
    policy = SnapshotPolicy(every_steps=10)
    undisturbed = prepare("slow_run.py", "0", snapshot=policy)
    undisturbed.start()
    run = prepare("slow_run.py", str(_START), standby=True, snapshot=policy)
    run.start()
    for step in (12, 40):
        run.reach_step(step, attempt=run.attempt)
        held(run)
        assert kill_and_come_back(run, 1) < _START
        assert run.steps(0)[-1][0] > 10, "it has resumed"
    assert run.finish() == "succeeded"
    assert undisturbed.finish() == "succeeded"
    assert run.weights() == undisturbed.weights()


@pytest.mark.parametrize("change", ["content", "entry", "checkpoint"])
def test_ranks_are_discarded_whose_inputs_have_changed_since_they_read_them(prepare, data, change):
    run = prepare("slow_start.py", str(_START), "1000000", str(data), "0.1", standby=True)
    run.start()
    run.reach_step(6)
    first = held(run)[0]
    assert {str(data), str(data / "0.txt")} <= first.inputs.keys()
    if change == "content":
        (data / "0.txt").write_text("2.5")
        os.utime(data / "0.txt", _OLD)
    elif change == "entry":
        (data / "-.txt").write_text("2.5")
    else:  # it is recent, so they have not looked at it yet
        assert not any("checkpoint" in path for path in (*first.inputs, *first.missing))
    kill_and_come_back(run, 1)
    run.want(JobIntent.CANCEL)
    assert run.finish() == "cancelled"
    log = run.run_dir.keeper_log.read_text()
    if change == "checkpoint":
        assert "discarded" not in log
    else:
        assert "standby world discarded: " in log
        assert "scale 2.5" in run.log(0, attempt=2), "what is there now counts"


def test_a_checkpoint_that_was_not_there_yet_when_the_ranks_looked_is_loaded(prepare, data):
    run = prepare("slow_start.py", "0", "1000000", str(data), "0.1", standby=True)
    checkpoint = run.run_dir.code / "checkpoint.pt"
    source = run.run_dir.code / "train.py"
    source.write_text(source.read_text().replace("step % 5 == 0", "step >= 60"))
    os.utime(source, _OLD)
    run.start()
    run.reach_step(3)
    assert str(checkpoint) in {path for rank in held(run) for path in rank.missing}
    run.reach_step(65)
    kill_and_come_back(run)
    assert f"standby world discarded: {checkpoint} has changed" in run.run_dir.keeper_log.read_text()
    assert run.steps(0)[1][0] > 60
    run.want(JobIntent.CANCEL)
    assert run.finish() == "cancelled"


def test_one_process_alone_is_held_as_well_and_so_is_a_script_that_fails_without_any_effect(prepare):
    run = prepare("slow_start.py", ranks=1, standby=True, launch=LaunchMode.PROCESS)
    source = run.run_dir.code / "train.py"
    source.write_text(
        "import os, time\n"
        "attempt = int(os.environ['REKINDLE_ATTEMPT'])\n"
        "if attempt == 2:\n    raise ValueError('of attempt 2')\n"
        "print('step', attempt, flush=True)\n"
        "time.sleep(3600 if attempt == 1 else 0)\n"
    )
    run.start()
    run.reach_step(1)
    held(run, ranks=1)
    run.signal_rank(0)
    assert run.finish() == "succeeded"
    failed = run.outcomes()[1]
    assert (failed["class"], failed["exception"]) == ("user_error", "ValueError")
    assert run.log(0, attempt=3).strip() == "step 3"


@pytest.mark.parametrize("end", [signal.SIGKILL, JobIntent.DRAIN, JobIntent.CANCEL])
def test_nothing_of_the_ranks_in_standby_is_left(prepare, data, end):
    run = prepare("slow_start.py", "1", "1000000", str(data), "0.1", standby=True)
    run.start()
    run.reach_step(3)
    held(run)
    if end is signal.SIGKILL:
        run.kill_keeper()
        until(lambda: not run.processes(), "no process of the run is left", 20)
        return
    run.want(end)
    assert run.leave() == 0
