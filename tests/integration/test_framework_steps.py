"""What the callbacks of frameworks share, in a world of one rank. The frameworks themselves: tests/ecosystem."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from job_records import record_attempt, record_status
from rekindle import Drained
from rekindle.contract.environment import ATTEMPT, RUN_DIR, RankEnv
from rekindle.contract.files import write_json
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import RankStatus
from rekindle.contract.run_dir.script_files import Checkpoint, Observations
from rekindle.integrations import framework_steps
from rekindle.integrations.framework_steps import FrameworkSteps, latest_own_checkpoint
from rekindle.training import reporter
from rekindle.training.reporter import Reporter


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setenv(RUN_DIR, str(tmp_path))
    return RunDir(tmp_path)


def test_outside_rekindle_steps_are_inert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_DIR, raising=False)
    handler = signal.getsignal(signal.SIGTERM)
    steps = FrameworkSteps()
    assert not steps.join(0)
    steps.begin()
    assert not steps.end(1, pauses=False)
    steps.log(1, {"loss": 0.5})
    steps.finish()
    assert signal.getsignal(signal.SIGTERM) is handler
    assert latest_own_checkpoint(lambda path: True) is None


def test_a_signal_within_a_step_is_noticed_and_keeps_from_the_framework(run_dir: RunDir) -> None:
    of_framework: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: of_framework.append(number))
    try:
        steps = FrameworkSteps()
        assert steps.join(0)
        steps.begin()
        os.kill(os.getpid(), signal.SIGTERM)
        assert not steps.end(1, pauses=False), "the ranks agree while a step is computed"
        steps.begin()
        assert steps.end(2, pauses=True)
        steps.begin()
        assert steps.end(3, pauses=False), "a request is kept while the epoch ends"
        steps.finish()
        os.kill(os.getpid(), signal.SIGTERM)
        assert of_framework == [signal.SIGTERM], "the framework's handler is back"
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_keeper_learns_whether_the_training_is_complete(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    record_status(record_attempt(run_dir).rank(0), 0)
    rank = Reporter(RankEnv.read({RUN_DIR: str(run_dir.root), ATTEMPT: "1"}))
    monkeypatch.setattr(framework_steps, "reporter", lambda: rank)
    monkeypatch.setattr(reporter, "reporter", lambda: rank)
    steps = FrameworkSteps()
    seen = []
    for call in (partial(steps.join, 0), steps.begin, partial(steps.end, 1, pauses=False), steps.finish):
        call()
        status = read_record(run_dir.attempt(1).rank(0).status, RankStatus)
        seen.append(status is not None and status.completed)
    assert seen == [False, False, False, True]
    rank.flush()
    assert not run_dir.attempt(1).rank(0).metrics.exists()


def test_only_the_latest_save_of_a_drain_is_kept(run_dir: RunDir) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        steps = FrameworkSteps()
        steps.join(0)
        for number, step in enumerate((40, 9)):  # the job went back to an earlier checkpoint
            steps.drain_path(step).mkdir(parents=True)
            os.utime(steps.drain_path(step), (number, number))
        with pytest.raises(Drained) as drained:
            steps.leave(9)
        assert (drained.value.code, drained.value.step) == (75, 9)
        assert list(steps.drain_path(9).parent.iterdir()) == [steps.drain_path(9)]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_latest_checkpoint_is_one_that_the_framework_can_load(run_dir: RunDir, tmp_path: Path) -> None:
    paths = {name: str(tmp_path / name) for name in ("given.ckpt", "1.ckpt", "2.ckpt", "torn.ckpt", "gone.ckpt")}
    for name in paths.keys() - {"gone.ckpt"}:
        (tmp_path / name).touch()
    found = [
        Checkpoint(path, "torch", 0, at, attempt=int(name != "given.ckpt"), complete=name != "torn.ckpt")
        for at, (name, path) in zip((9.0, 1.0, 2.0, 3.0, 4.0), paths.items(), strict=True)
    ]
    write_json(run_dir.observed, Observations(checkpoints=found).to_json())
    assert latest_own_checkpoint(lambda path: True) == paths["2.ckpt"]
    assert latest_own_checkpoint(lambda path: path.name == "1.ckpt") == paths["1.ckpt"]
