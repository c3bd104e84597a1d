"""A script that reports no steps has progressed when it has saved something to go on from."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.observers.files import WEIGHTS, FileProgress


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path)
    for folder in (run_dir.snapshots, run_dir.code / "out" / "checkpoint-10"):
        folder.mkdir(parents=True)
    (run_dir.code / "out" / "last.ckpt").write_bytes(b"old")
    os.utime(run_dir.code / "out" / "last.ckpt", (1, 1))
    return run_dir


Change = Callable[[RunDir], object]


@pytest.mark.parametrize(
    ("change", "killed", "by_itself"),
    [
        (lambda run: None, False, False),
        (lambda run: (run.snapshots / "anything").write_bytes(b"x"), True, True),
        (lambda run: (run.snapshots / "model.pt").write_bytes(b"x"), True, True),
        (lambda run: (run.snapshots / "hparams.yaml").write_bytes(b"x"), True, False),
        (lambda run: (run.snapshots / "events.out.tfevents.1.host.1.0").write_bytes(b"x"), True, False),
        *((lambda run, end=end: (run.code / "out" / f"new{end}").write_bytes(b"x"), True, False) for end in WEIGHTS),
        (lambda run: (run.code / "out" / "last.ckpt").write_bytes(b"new"), True, False),
        (lambda run: (run.code / "out" / "checkpoint-10" / "model.pt").write_bytes(b"x"), True, False),
        (lambda run: (run.code / "out" / "last.ckpt").unlink(), True, False),
        (lambda run: (run.code / "train.log").write_bytes(b"x"), False, False),
        (lambda run: (run.code / "events.out.tfevents.1.host.1.0").write_bytes(b"x"), False, False),
        (lambda run: (run.code / "new.pt").symlink_to("/etc/passwd"), False, False),
        (lambda run: (run.code / "new.pt").mkdir(), False, False),
    ],
)
def test_what_counts(run_dir: RunDir, change: Change, killed: bool, by_itself: bool) -> None:
    saved = FileProgress(run_dir)
    change(run_dir)
    assert saved.changed(by_itself=False) is killed
    assert saved.changed(by_itself=True) is by_itself


def test_a_folder_that_is_not_there_yet_holds_nothing(tmp_path: Path) -> None:
    assert not FileProgress(RunDir(tmp_path / "missing")).changed(by_itself=False)
