"""Killed ranks that continue from shared memory: real torchrun, with the keeper's part played here."""

import shutil

import pytest

from plain_torchrun import EXACT, assert_same_result, lines, snapshot_steps, torchrun
from rekindle.contract.environment import attempt_environment
from rekindle.contract.files import write_json
from rekindle.contract.run_dir.paths import RunDir

RARELY = '{"every_steps": 1000, "every_seconds": null, "every_epochs": null, "keep": 3}'


def attempt(run_dir, number, **environment):
    generation = f"{number}-test"
    write_json(run_dir.fence, {"generation": generation})
    own = attempt_environment(run_dir=run_dir, attempt=number, generation=generation, snapshot_policy=RARELY)
    return torchrun(2, [EXACT], run_dir.root, COPIES="1", **own, **environment)


@pytest.fixture
def run_dir(tmp_path):
    found = RunDir(tmp_path / "job")
    found.root.mkdir()
    found.snapshots.mkdir()
    yield found
    shutil.rmtree(found.memory, ignore_errors=True)


@pytest.mark.parametrize("fault", ["1:11:SIGKILL", "1:>8:write_state+", "0:>8:publish"])
def test_a_killed_rank_costs_no_step_that_shared_memory_still_has(run_dir, exact_training, fault):
    assert attempt(run_dir, 1, FAULT=fault).code == 1
    kept = copy_steps(run_dir)
    assert snapshot_steps(run_dir.root) == []
    assert kept
    ended = attempt(run_dir, 2)
    assert ended.code == 0, ended.output
    for rank in range(2):
        trained = [step for step, _ in lines(run_dir.root / f"losses-{rank}.jsonl")]
        assert trained.count(1) == trained.count(kept[-1]) == 1
    assert_same_result(run_dir.root, exact_training)
    assert not run_dir.memory.exists()
    assert snapshot_steps(run_dir.root) == [21]


def copy_steps(run_dir):
    return sorted(int(entry.name) for entry in run_dir.memory.iterdir() if entry.name.isdecimal())
