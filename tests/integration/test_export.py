"""Plain weights from snapshots: unchanged, whole or not at all, and never in place of another file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from rekindle import Snapshots
from rekindle.training.export import ExportError, export

NAMES = ["weights.pt", "weights.safetensors"]


def model(step):
    torch.manual_seed(step)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).state_dict()


def save(directory, *steps, state=None):
    snapshots = Snapshots(directory)
    for step in steps:
        assert snapshots.save(step, 1, {"model": state or model(step), "optimizer": {}}, {"rng": [step]}).saved


def run(directory, file, *, step=None, job_id=None, force=False):
    return export(Path(directory), Path(file), step=step, job_id=job_id, force=force)


def load(path):
    return load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)


def assert_same(found, expected):
    assert sorted(found) == sorted(expected)
    assert all(torch.equal(item, expected[name]) for name, item in found.items())


def damage(directory, step):
    path = directory / f"{step:012d}" / "model.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.fixture
def directory(tmp_path):
    save(tmp_path / "snapshots", 10, 20)
    return tmp_path / "snapshots"


@pytest.mark.parametrize("name", NAMES)
def test_the_latest_weights_are_exported_as_they_were_and_a_model_loads_them(directory, tmp_path, name):
    (tmp_path / "out").mkdir()
    report = run(directory, tmp_path / "out" / name)
    assert (report["step"], report["epoch"], report["tensors"], report["skipped"]) == (20, 1, 9, [])
    assert_same(load(tmp_path / "out" / name), model(20))
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == [name]
    (tmp_path / "any").touch()
    assert (tmp_path / "out" / name).stat().st_mode == (tmp_path / "any").stat().st_mode


def test_an_older_snapshot_is_exported_by_its_step_or_its_directory(directory, tmp_path):
    run(directory, tmp_path / "by-step.pt", step=10)
    run(directory / "000000000010", tmp_path / "by-directory.pt")
    assert_same(load(tmp_path / "by-step.pt"), model(10))
    assert_same(load(tmp_path / "by-directory.pt"), model(10))


@pytest.mark.parametrize("name", NAMES)
def test_tied_weights_and_parts_of_larger_tensors_come_out_right(tmp_path, name):
    whole = torch.arange(24.0).reshape(4, 6)
    state = {"embedding": whole, "head": whole, "part": whole[1:3], "turned": whole.t(), "scalar": torch.tensor(3)}
    save(tmp_path / "snapshots", 1, state=state)
    run(tmp_path / "snapshots", tmp_path / name)
    assert_same(load(tmp_path / name), state)


def test_a_damaged_snapshot_is_skipped_unless_it_was_requested_and_left_where_it_is(directory, tmp_path):
    damage(directory, 20)
    with pytest.raises(ExportError, match=r"step 20 must not be used: model.pt fails its checksum; try --step 10"):
        run(directory, tmp_path / "weights.pt", step=20)
    assert not (tmp_path / "weights.pt").exists()
    report = run(directory, tmp_path / "weights.pt")
    assert report["step"] == 10
    assert report["skipped"] == ["the snapshot of step 20 must not be used: model.pt fails its checksum"]
    damage(directory, 10)
    with pytest.raises(ExportError, match=r"step 20 .*; the snapshot of step 10 .*; there is no other snapshot"):
        run(directory, tmp_path / "other.pt")
    assert not (tmp_path / "other.pt").exists()
    assert sorted(entry.name for entry in directory.iterdir()) == ["000000000010", "000000000020"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"file": "weights.onnx"}, r"weights.onnx must end in .safetensors or .pt"),
        ({"file": "weights"}, r"weights must end in"),
        ({"file": "none/weights.pt"}, "there is no directory none"),
        ({"file": "directory.pt"}, "directory.pt is a directory: name a file"),
        ({"file": "there.pt"}, "there.pt exists already: --force replaces it"),
        ({"step": 15}, "holds no snapshot of step 15, only of 20, 10"),
        ({"job_id": "job-2"}, "step 20 must not be used: it belongs to job job-1, this is job job-2"),
        ({"directory": "none"}, "there is no directory none"),
        ({"directory": "empty"}, "empty holds no snapshot yet"),
    ],
)
def test_what_cannot_be_exported_is_refused_and_nothing_is_written(tmp_path, monkeypatch, options, complaint):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REKINDLE_JOB_ID", "job-1")
    save("snapshots", 10, 20)
    for name in ("empty", "directory.pt"):
        Path(name).mkdir()
    Path("there.pt").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ExportError, match=complaint):
        run(**{"directory": "snapshots", "file": "weights.pt", **options})
    assert sorted(tmp_path.rglob("*")) == before
    assert Path("there.pt").read_text() == "mine"


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_appears_meanwhile_is_replaced_only_by_force(directory, tmp_path, monkeypatch, name):
    link, file = os.link, tmp_path / name
    monkeypatch.setattr(os, "link", lambda one, other: (Path(other).write_text("mine"), link(one, other)))
    with pytest.raises(ExportError, match="was created meanwhile"):
        run(directory, file)
    assert file.read_text() == "mine"
    run(directory, file, force=True)
    assert_same(load(file), model(20))


def test_state_that_is_no_tensor_goes_into_a_torch_file_only(tmp_path):
    state = {**model(1), "_extra_state": {"scale": 2}}
    save(tmp_path / "snapshots", 1, state=state)
    with pytest.raises(
        ExportError, match=r"_extra_state in the model's state is a dict, .*: export to a name that ends in"
    ):
        run(tmp_path / "snapshots", tmp_path / "weights.safetensors")
    run(tmp_path / "snapshots", tmp_path / "weights.pt")
    assert load(tmp_path / "weights.pt")["_extra_state"] == {"scale": 2}


def test_without_safetensors_the_other_way_is_named(directory, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(
        ExportError, match=r"safetensors is not installed in .*pip install safetensors`, or .* ends in .pt"
    ):
        run(directory, tmp_path / "weights.safetensors")
    run(directory, tmp_path / "weights.pt")


def test_snapshots_without_a_model_are_refused_by_name(tmp_path):
    Snapshots(tmp_path / "snapshots").save(1, 0, {"weights": torch.zeros(1)}, {})
    with pytest.raises(ExportError, match=r"model.pt must hold a dict with the model's state as 'model', and does not"):
        run(tmp_path / "snapshots", tmp_path / "weights.pt")


KILLED = """
import os, signal
os.fsync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)
from rekindle.training.export import main
main()
"""


@pytest.mark.parametrize("name", NAMES)
def test_an_export_killed_before_it_is_on_disk_leaves_what_was_there(directory, tmp_path, name):
    (tmp_path / name).write_text("mine")
    killed = subprocess.run([sys.executable, "-c", KILLED, directory, tmp_path / name, "--force"], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / name).read_text() == "mine"
    assert list(tmp_path.glob(f".{name}.*"))  # so it was killed with all of it written


def test_as_a_program_it_prints_what_it_did_or_why_not_in_one_line(directory, tmp_path):
    def program(*words):
        argv = [sys.executable, "-m", "rekindle.training.export", directory, *words]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)

    done, refused = program("weights.pt"), program("weights.onnx")
    assert (done.returncode, done.stderr) == (0, "")
    assert '"step": 20' in done.stdout
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: weights.onnx must end in")
    assert refused.stderr.count("\n") == 1
