"""A job goes back to a checkpoint of its script: newer ones are moved away, and none is lost in between."""

import json
import os
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from job_examples import a_job
from rekindle.contract.files import write_json
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.placeholders import attempt_arguments
from rekindle.contract.run_dir.script_files import Checkpoint, Observations, position_in_name
from rekindle.keeper.observers.checkpoints import CheckpointTracker, move_newer_away
from unit.test_checkpoint_format import TORCH


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path / "run")
    for directory in (run_dir.code, run_dir.snapshots):
        directory.mkdir(parents=True)
    return run_dir


def save(run_dir: RunDir, at: float, *names: str, data: bytes = TORCH) -> None:
    """Write a checkpoint, a file or a directory of ``names`` below the first, and let the keeper have found it."""
    path = run_dir.code / names[0]
    files = [path / name for name in names[1:]] or [path]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        os.utime(file, (at, at))
    found = Checkpoint(str(path), "torch", len(data) * len(files), at, attempt=1, files=list(names[1:]))
    known = Observations(1, ended=True, checkpoints=[found, *_observed(run_dir)])
    write_json(run_dir.observed, known.to_json())


def _observed(run_dir: RunDir) -> list[Checkpoint]:
    if not run_dir.observed.exists():
        return []
    return Observations.from_json(json.loads(run_dir.observed.read_bytes())).checkpoints


def visible(run_dir: RunDir) -> list[str]:
    return sorted(path.name for path in run_dir.code.glob("*"))


def go_back(run_dir: RunDir, name: str, run: int = 2) -> list[str] | None:
    moved = move_newer_away(run_dir, str(run_dir.code / name), run)
    return None if moved is None else sorted(Path(path).name for path in moved)


def test_newer_checkpoints_are_moved_away_and_kept(run_dir: RunDir) -> None:
    for epoch in (1, 2, 3):
        save(run_dir, 100.0 + epoch, f"epoch_{epoch}.pt", data=TORCH + bytes(epoch))
    save(run_dir, 101.0, "epoch_10.pt")  # in the same tick of the clock as epoch_1.pt
    save(run_dir, 200.0, "odd\n\x1b[31m..pt")
    (run_dir.code / "data.csv").write_text("1")
    assert go_back(run_dir, "epoch_1.pt") == ["epoch_10.pt", "epoch_2.pt", "epoch_3.pt", "odd\n\x1b[31m..pt"]
    assert visible(run_dir) == ["data.csv", "epoch_1.pt"]
    assert (run_dir.root / "moved-away-2/epoch_3.pt").read_bytes() == TORCH + bytes(3)
    tracker = CheckpointTracker(run_dir, 2)
    assert [Path(each.path).name for each in tracker.observed.checkpoints] == ["epoch_1.pt"]


def test_directories_and_those_of_the_same_pattern_elsewhere_are_moved_away(run_dir: RunDir) -> None:
    save(run_dir, 100.0, "out/checkpoint-5", "model.pt", "optim.pt")
    save(run_dir, 101.0, "out/checkpoint-10", "model.pt", "optim.pt")
    save(run_dir, 102.0, "other/weights.pt")
    assert go_back(run_dir, "out/checkpoint-5") == ["checkpoint-10"]
    assert (run_dir.root / "moved-away-2/checkpoint-10/optim.pt").exists()
    assert (run_dir.code / "other/weights.pt").exists()
    save(run_dir, 100.0, "version_0/epoch=1.ckpt")
    save(run_dir, 101.0, "version_1/epoch=2.ckpt")
    assert go_back(run_dir, "version_0/epoch=1.ckpt") == ["epoch=2.ckpt"]


def test_the_name_of_the_latest_one_gets_the_content_of_the_chosen_one(run_dir: RunDir) -> None:
    save(run_dir, 100.0, "epoch_1.pt", data=TORCH + b"first")
    save(run_dir, 101.0, "epoch_2.pt", data=TORCH + b"other")
    save(run_dir, 101.5, "last.pt", data=TORCH + b"other")
    save(run_dir, 101.5, "optimizer.pt", data=TORCH + bytes(5000))  # something else
    (run_dir.code / "latest.pt").symlink_to("epoch_2.pt")
    go_back(run_dir, "epoch_1.pt")
    assert (run_dir.code / "last.pt").read_bytes() == (run_dir.code / "latest.pt").read_bytes() == TORCH + b"first"
    assert not (run_dir.code / "last.pt").samefile(run_dir.code / "epoch_1.pt"), "a script may write it in place"
    assert not (run_dir.code / "optimizer.pt").exists()


def test_a_small_file_may_have_another_size_under_another_name_if_its_tensors_have_the_same(run_dir: RunDir) -> None:
    save(run_dir, 100.0, "epoch=1-step=200.ckpt", data=archive("epoch=1-step=200", 40, 8))
    save(run_dir, 101.0, "last.ckpt", data=archive("last", 8, 40))
    save(run_dir, 101.0, "optimizer.ckpt", data=archive("optimizer", 40, 88))
    go_back(run_dir, "epoch=1-step=200.ckpt")
    assert visible(run_dir) == ["epoch=1-step=200.ckpt", "last.ckpt"]
    assert (run_dir.code / "last.ckpt").read_bytes() == (run_dir.code / "epoch=1-step=200.ckpt").read_bytes()


def archive(name: str, *sizes: int) -> bytes:
    """What torch writes to a file of this name: an archive with a file for each tensor."""
    data = BytesIO()
    with ZipFile(data, "w") as file:
        file.writestr(f"{name}/data.pkl", b"pickle")
        for index, size in enumerate(sizes):
            file.writestr(f"{name}/data/{index}", bytes(size))
    return data.getvalue()


def test_checkpoints_outside_of_the_job_are_hidden_next_to_their_places(run_dir: RunDir, tmp_path: Path) -> None:
    for epoch in (1, 2):
        save(run_dir, 100.0 + epoch, str(tmp_path / f"out/epoch_{epoch}.pt"))
    assert go_back(run_dir, str(tmp_path / "out/epoch_1.pt")) == ["epoch_2.pt"]
    assert (tmp_path / "out/.moved-away-2/epoch_2.pt").exists()


def test_a_keeper_killed_between_two_renames_is_followed_by_one_that_moves_the_rest(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in (1, 2, 3):
        save(run_dir, 100.0 + epoch, f"epoch_{epoch}.pt")
    rename = Path.rename

    def rename_one(path: Path, target: str) -> Path:
        monkeypatch.setattr(Path, "rename", _fail)
        return rename(path, target)

    def _fail(path: Path, target: str) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", rename_one)
    with pytest.raises(KeyboardInterrupt):
        go_back(run_dir, "epoch_1.pt")
    monkeypatch.setattr(Path, "rename", rename)
    assert len(visible(run_dir)) == 2
    assert len(go_back(run_dir, "epoch_1.pt") or []) == 1
    assert go_back(run_dir, "epoch_1.pt") == []
    assert sorted(path.name for path in (run_dir.root / "moved-away-2").iterdir()) == ["epoch_2.pt", "epoch_3.pt"]


def test_a_keeper_killed_while_it_copies_is_followed_by_one_that_copies(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: object, copy: object) -> None:
        raise KeyboardInterrupt

    save(run_dir, 100.0, "epoch_1.pt", data=TORCH + b"first")
    save(run_dir, 101.0, "last.pt", data=TORCH + b"other")
    with monkeypatch.context() as patched:
        patched.setattr("shutil.copyfileobj", fail)
        with pytest.raises(KeyboardInterrupt):
            go_back(run_dir, "epoch_1.pt")
    go_back(run_dir, "epoch_1.pt")
    assert (run_dir.code / "last.pt").read_bytes() == TORCH + b"first"
    assert (run_dir.root / "moved-away-2/last.pt").read_bytes() == TORCH + b"other"


def test_nothing_moves_for_one_that_is_unknown_gone_or_replaced(run_dir: RunDir, tmp_path: Path) -> None:
    save(run_dir, 100.0, "epoch_1.pt")
    save(run_dir, 101.0, "epoch_2.pt")
    (tmp_path / "secret").write_bytes(TORCH)
    assert go_back(run_dir, "epoch_9.pt") is None
    assert go_back(run_dir, "../../secret") is None
    (run_dir.code / "epoch_1.pt").write_bytes(TORCH + b"new")
    assert go_back(run_dir, "epoch_1.pt") is None
    (run_dir.code / "epoch_1.pt").unlink()
    (run_dir.code / "epoch_1.pt").symlink_to(tmp_path / "secret")
    assert go_back(run_dir, "epoch_1.pt") is None
    assert (run_dir.code / "epoch_2.pt").exists()


def test_the_placeholder_is_the_latest_complete_checkpoint_or_goes_with_its_option(run_dir: RunDir) -> None:
    spec = replace(a_job().spec, args=["--lr", "1"], on_restart=["--resume", "{checkpoint}"])
    assert attempt_arguments(spec, run_dir, 2) == ["--lr", "1"]
    save(run_dir, 100.0, "epoch_1.pt")
    save(run_dir, 101.0, "epoch_2.pt")
    assert attempt_arguments(spec, run_dir, 2)[2:] == ["--resume", str(run_dir.code / "epoch_2.pt")]
    go_back(run_dir, "epoch_1.pt")
    assert attempt_arguments(spec, run_dir, 2)[2:] == ["--resume", str(run_dir.code / "epoch_1.pt")]
    assert attempt_arguments(spec, run_dir, 1) == ["--lr", "1"]


NAMES = [
    ("out/epoch_3.pt", {"epoch": 3}),
    ("ckpt-epoch12.pth", {"epoch": 12}),
    ("epoch=3-step=1200.ckpt", {"epoch": 3, "step": 1200}),
    ("out/checkpoint-500", {"step": 500}),
    ("global_step40", {"step": 40}),
    ("model_iter_000100.pt", {"step": 100}),
    ("checkpoint_3.pth", {}),  # an epoch, or a step
    ("ckpt.pt", {}),
    ("timestep_3d.pt", {}),
    ("epoch_" + "9" * 400 + ".pt", {}),
]


@pytest.mark.parametrize(("name", "position"), NAMES)
def test_a_name_states_step_and_epoch_or_nothing(name: str, position: dict[str, int]) -> None:
    assert position_in_name(name) == position
