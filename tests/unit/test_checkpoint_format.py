"""A checkpoint is recognised by its bytes, whatever its name; what is torn is moved away, and only that."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from rekindle.contract.files import write_json
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.script_files import Checkpoint, Observations
from rekindle.keeper.observers.checkpoint_files import recognize
from rekindle.keeper.observers.checkpoints import move_torn

NAME = b"archive/data.pkl"
TORCH = b"PK\x03\x04" + bytes(22) + struct.pack("<HH", len(NAME), 0) + NAME + bytes(500) + b"PK\x05\x06" + bytes(18)
HEADER = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "__metadata__": {}}).encode()
SAFETENSORS = struct.pack("<Q", len(HEADER)) + HEADER + bytes(8)
LEGACY = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19" + bytes(100)


def test_a_checkpoint_is_recognised_by_its_bytes_and_a_link_is_none(tmp_path: Path) -> None:
    path = tmp_path / "any.name"
    for data, found in (
        (TORCH, ("torch", True)),
        (TORCH[:-30], ("torch", False)),
        (TORCH[:60], ("torch", False)),
        (SAFETENSORS, ("safetensors", True)),
        (SAFETENSORS[:-1], ("safetensors", False)),
        (SAFETENSORS[:20], ("safetensors", False)),
        (LEGACY, ("torch", True)),
        (TORCH.replace(NAME, b"a.npy0000000.npy"), None),  # numpy's archive
        (b"\x93NUMPY" + bytes(1000), None),
        (bytes(100_000), None),
        (b"ARROW1" + bytes(1000), None),
        (b"", None),
        (b"{}", None),
        (struct.pack("<Q", 5) + b"{nope", None),
    ):
        path.write_bytes(data)
        format_ = recognize(path)
        assert (None if format_ is None else (format_.kind, format_.complete)) == found, data[:40]
    path.write_bytes(TORCH)
    (tmp_path / "link.pt").symlink_to(path)
    assert recognize(tmp_path / "link.pt") is None


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path / "run")
    run_dir.code.mkdir(parents=True)
    return run_dir


def observe(run_dir: RunDir, *checkpoints: Checkpoint, attempt: int = 1, ended: bool = True) -> None:
    write_json(run_dir.observed, Observations(attempt, ended, list(checkpoints)).to_json())


def torn(path: Path, attempt: int = 1) -> Checkpoint:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(TORCH[:-30])
    return Checkpoint(str(path), "torch", 1, 1.0, attempt, complete=False)


def moved(run_dir: RunDir) -> list[str]:
    return [Path(target).name for _, target, _ in move_torn(run_dir)]


def test_what_the_last_attempt_tore_is_moved_and_kept_once_lest_the_disk_fills(run_dir: RunDir) -> None:
    path = run_dir.code / "out" / "ckpt.pt"
    observe(run_dir, torn(path))
    assert moved(run_dir) == ["ckpt.pt.torn-1"]
    assert not path.exists()
    assert path.with_name("ckpt.pt.torn-1").read_bytes() == TORCH[:-30]
    observe(run_dir, torn(path, attempt=2), attempt=2)
    assert moved(run_dir) == []
    observe(run_dir, replace(torn(path, attempt=2), loaded=3), attempt=3)
    assert moved(run_dir) == ["ckpt.pt.torn-2"], "the script tried to load it"


def test_what_is_whole_by_now_or_was_torn_long_ago_stays(run_dir: RunDir) -> None:
    whole, old = torn(run_dir.code / "whole.pt"), torn(run_dir.code / "old.pt", attempt=1)
    (run_dir.code / "whole.pt").write_bytes(TORCH)
    observe(run_dir, replace(whole, attempt=2), old, attempt=2)
    assert moved(run_dir) == []


def test_nothing_moves_before_the_end_of_the_attempt_is_recorded(run_dir: RunDir) -> None:
    assert moved(run_dir) == []
    observe(run_dir, torn(run_dir.code / "ckpt.pt"), ended=False)
    assert moved(run_dir) == []


def test_a_directory_moves_only_where_it_is_nothing_but_the_checkpoint(run_dir: RunDir) -> None:
    sharded, mixed = run_dir.code / "sharded", run_dir.code / "results"
    for directory in (sharded, mixed):
        torn(directory / "__0_0.distcp")
    (mixed / "train.log").write_text("x")
    group = Checkpoint("", "sharded", 1, 1.0, 1, complete=False)
    parts = [replace(group, path=str(path)) for path in (sharded, mixed, run_dir.code, run_dir.root)]
    observe(run_dir, *parts)
    assert moved(run_dir) == ["sharded.torn-1"]
