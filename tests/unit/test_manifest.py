import hashlib
import json
from dataclasses import replace
from itertools import product

import pytest

from rekindle.contract.run_dir.snapshots import BadSnapshotError, FileRecord, Manifest, SnapshotDir
from rekindle.contract.score import Score
from rekindle.training.snapshots.storage.directory import verify, write_manifest

CONTENT = {"model.pt": b"weights" * 999, "rank-0.pt": b"rng 0", "rank-1.pt": b"rng 1"}


@pytest.fixture
def snapshot(tmp_path):
    folder = SnapshotDir(tmp_path).path(40)
    folder.mkdir()
    for name, data in CONTENT.items():
        (folder / name).write_bytes(data)
    files = {name: FileRecord(len(data), hashlib.sha256(data).hexdigest()) for name, data in CONTENT.items()}
    write_manifest(folder, Manifest("job", 40, 3, 2, 1e9, "1-ab", "2.15.0", files))
    return folder


def score_of(folder):
    manifest = SnapshotDir(folder.parent).manifest(40)
    return None if manifest is None else manifest.score


def reason(folder, *, step=40, job_id="job"):
    with pytest.raises(BadSnapshotError) as caught:
        verify(folder, step=step, job_id=job_id)
    return str(caught.value)


def change(folder, **fields):
    path = folder / "manifest.json"
    changed = {**json.loads(path.read_text()), **fields}
    del changed["sha256"]
    digest = hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**changed, "sha256": digest}) + "\n")


def test_an_intact_snapshot_passes(snapshot):
    assert verify(snapshot, step=40, job_id="job").world_size == 2
    assert verify(snapshot, step=40, job_id=None).epoch == 3


@pytest.mark.parametrize("name", CONTENT)
def test_a_flipped_bit_is_noticed_in_every_file(snapshot, name):
    data = bytearray(CONTENT[name])
    data[len(data) // 2] ^= 1
    (snapshot / name).write_bytes(data)
    assert reason(snapshot) == f"{name} fails its checksum"


@pytest.mark.parametrize("name", CONTENT)
def test_a_truncated_file_is_noticed(snapshot, name):
    (snapshot / name).write_bytes(CONTENT[name][:-1])
    assert reason(snapshot).startswith(f"{name} has {len(CONTENT[name]) - 1} bytes")


@pytest.mark.parametrize("name", [*CONTENT, "manifest.json"])
def test_a_missing_file_is_noticed(snapshot, name):
    (snapshot / name).unlink()
    assert reason(snapshot) == f"{name} is missing"


def test_every_flipped_bit_of_the_manifest_is_noticed(snapshot):
    path = snapshot / "manifest.json"
    good = path.read_bytes()
    for index, bit in product(range(len(good)), range(8)):
        path.write_bytes(good[:index] + bytes([good[index] ^ 1 << bit]) + good[index + 1 :])
        reason(snapshot)


def test_a_manifest_cut_short_anywhere_is_noticed_and_one_reformatted_too(snapshot):
    path = snapshot / "manifest.json"
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        reason(snapshot)
    path.write_text(json.dumps(json.loads(good), indent=1))
    assert reason(snapshot) == "manifest.json is not as it was written"


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '"text"', '{"format": 1}', "[" * 500, "\x00" * 100])
def test_what_is_not_a_manifest_is_refused(snapshot, text):
    (snapshot / "manifest.json").write_text(text)
    reason(snapshot)


def test_a_format_of_the_future_is_refused_by_its_number(snapshot):
    change(snapshot, format=2)
    assert reason(snapshot) == "its format is 2, this rekindle reads 1"


def test_a_snapshot_of_another_job_is_refused(snapshot):
    assert reason(snapshot, job_id="other") == "it belongs to job job, this is job other"


def test_a_renamed_snapshot_is_refused(snapshot):
    assert reason(snapshot, step=41) == "its manifest has step 40, its directory 41"


def test_a_manifest_that_leads_out_of_its_directory_is_refused(snapshot):
    files = json.loads((snapshot / "manifest.json").read_text())["files"]
    change(snapshot, files={**files, "../secret": files["model.pt"]})
    assert "not the files of 2 ranks" in reason(snapshot)


def test_a_score_is_stored_and_protected_from_change(snapshot):
    assert score_of(snapshot) is None
    manifest = replace(verify(snapshot, step=40, job_id="job"), score=Score("-loss", 0.25))
    write_manifest(snapshot, manifest)
    assert verify(snapshot, step=40, job_id="job") == manifest
    assert score_of(snapshot) == Score("-loss", 0.25)
    path = snapshot / "manifest.json"
    path.write_text(path.read_text().replace("0.25", "0.15"))
    assert reason(snapshot) == "manifest.json fails its checksum"
    assert score_of(snapshot) is None


def test_shards_are_there_for_every_rank_or_for_none(snapshot):
    files = json.loads((snapshot / "manifest.json").read_text())["files"]
    for ranks in ((0,), (1,), (0, 1, 2)):
        change(snapshot, files={**files, **{f"shards-{rank}.pt": files["model.pt"] for rank in ranks}})
        assert "not the files of 2 ranks" in reason(snapshot)
    for rank in (0, 1):
        (snapshot / f"shards-{rank}.pt").write_bytes(CONTENT["model.pt"])
    change(snapshot, files={**files, **{f"shards-{rank}.pt": files["model.pt"] for rank in (0, 1)}})
    assert verify(snapshot, step=40, job_id="job").sharded


@pytest.mark.parametrize(
    "fields", [{"world_size": 10**18}, {"step": "40"}, {"created_at": None}, {"files": {"model.pt": 3}}]
)
def test_a_hostile_manifest_with_a_valid_checksum_is_refused(snapshot, fields):
    change(snapshot, **fields)
    assert "manifest.json" in reason(snapshot)
