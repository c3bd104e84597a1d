import hashlib
import json
from dataclasses import replace
from itertools import product

import pytest

from rekindle.contract.run_dir.snapshot_dir import BadSnapshotError, Manifest, SnapshotDir, SnapshotFile, SnapshotScore
from rekindle.training.snapshots.directory import verify, write_manifest

CONTENT = {"model.pt": b"weights" * 999, "rank-0.pt": b"rng 0", "rank-1.pt": b"rng 1"}


@pytest.fixture
def snapshot(tmp_path):
    directory = SnapshotDir(tmp_path).path(40)
    directory.mkdir()
    for name, data in CONTENT.items():
        (directory / name).write_bytes(data)
    files = {name: SnapshotFile(len(data), hashlib.sha256(data).hexdigest()) for name, data in CONTENT.items()}
    write_manifest(directory, Manifest("job", 40, 3, 2, 1e9, "1-ab", "2.15.0", files))
    return directory


def score_of(directory):
    manifest = SnapshotDir(directory.parent).manifest(40)
    return None if manifest is None else manifest.score


def reason(directory, *, step=40, job_id="job"):
    with pytest.raises(BadSnapshotError) as caught:
        verify(directory, step=step, job_id=job_id)
    return str(caught.value)


def change(directory, **fields):
    path = directory / "manifest.json"
    changed = {**json.loads(path.read_text()), **fields}
    del changed["sha256"]
    digest = hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**changed, "sha256": digest}) + "\n")


def test_an_intact_snapshot_passes(snapshot):
    assert verify(snapshot, step=40, job_id="job").world_size == 2
    assert verify(snapshot, step=40, job_id=None).epoch == 3


@pytest.mark.parametrize("name", CONTENT)
def test_a_truncated_changed_or_missing_file_is_noticed(snapshot, name):
    data = bytearray(CONTENT[name])
    (snapshot / name).write_bytes(data[:-1])
    assert reason(snapshot).startswith(f"{name} has {len(data) - 1} bytes")
    data[len(data) // 2] ^= 1
    (snapshot / name).write_bytes(data)
    assert reason(snapshot) == f"{name} fails its checksum"
    (snapshot / name).unlink()
    assert reason(snapshot) == f"{name} is missing"


def test_a_manifest_with_any_flipped_bit_or_cut_or_reformatted_or_missing_is_noticed(snapshot):
    path = snapshot / "manifest.json"
    good = path.read_bytes()
    for index, bit in product(range(len(good)), range(8)):
        path.write_bytes(good[:index] + bytes([good[index] ^ 1 << bit]) + good[index + 1 :])
        reason(snapshot)
    for length in range(len(good)):
        path.write_bytes(good[:length])
        reason(snapshot)
    path.write_text(json.dumps(json.loads(good), indent=1))
    assert reason(snapshot) == "manifest.json is not as it was written"
    path.unlink()
    assert reason(snapshot) == "manifest.json is missing"


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '"text"', '{"format": 1}', "[" * 500, "\x00" * 100])
def test_what_is_not_a_manifest_is_refused(snapshot, text):
    (snapshot / "manifest.json").write_text(text)
    reason(snapshot)


def test_a_snapshot_of_another_job_step_or_format_is_refused(snapshot):
    assert reason(snapshot, job_id="other") == "it belongs to job job, this is job other"
    assert reason(snapshot, step=41) == "its manifest has step 40, its directory 41"
    change(snapshot, format=2)
    assert reason(snapshot) == "its format is 2, this rekindle reads 1"


def test_a_score_is_stored_and_protected_from_change(snapshot):
    assert score_of(snapshot) is None
    manifest = replace(verify(snapshot, step=40, job_id="job"), score=SnapshotScore("-loss", 0.25))
    write_manifest(snapshot, manifest)
    assert verify(snapshot, step=40, job_id="job") == manifest
    assert score_of(snapshot) == SnapshotScore("-loss", 0.25)
    path = snapshot / "manifest.json"
    path.write_text(path.read_text().replace("0.25", "0.15"))
    assert reason(snapshot) == "manifest.json fails its checksum"
    assert score_of(snapshot) is None


def test_shards_are_there_for_every_rank_or_for_none_and_no_file_is_outside_the_directory(snapshot):
    files = json.loads((snapshot / "manifest.json").read_text())["files"]
    for names in (["../secret"], ["shards-0.pt"], ["shards-1.pt"], [f"shards-{rank}.pt" for rank in range(3)]):
        change(snapshot, files={**files, **dict.fromkeys(names, files["model.pt"])})
        assert "not the files of 2 ranks" in reason(snapshot)
    shards = ["shards-0.pt", "shards-1.pt"]
    for name in shards:
        (snapshot / name).write_bytes(CONTENT["model.pt"])
    change(snapshot, files={**files, **dict.fromkeys(shards, files["model.pt"])})
    assert verify(snapshot, step=40, job_id="job").sharded


@pytest.mark.parametrize(
    "fields", [{"world_size": 10**18}, {"step": "40"}, {"created_at": None}, {"files": {"model.pt": 3}}]
)
def test_a_hostile_manifest_with_a_valid_checksum_is_refused(snapshot, fields):
    change(snapshot, **fields)
    assert "manifest.json" in reason(snapshot)
