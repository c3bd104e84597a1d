"""Damage on request hits the newest committed snapshot, by one bit, and nothing else."""

from pathlib import Path

from rekindle.keeper.injection import corrupt, newest_snapshot


def snapshot(folder: Path, name: str, *, committed: bool = True) -> Path:
    place = folder / name
    place.mkdir()
    (place / "model.pt").write_bytes(bytes(1000))
    if committed:
        (place / "manifest.json").write_text("{}")
    return place


def test_the_newest_committed_snapshot_is_chosen(tmp_path: Path) -> None:
    assert newest_snapshot(tmp_path) is None
    assert newest_snapshot(tmp_path / "missing") is None
    older, newest = snapshot(tmp_path, "000000000009"), snapshot(tmp_path, "000000000010")
    snapshot(tmp_path, "000000000011", committed=False)
    snapshot(tmp_path, ".tmp-x-12")
    snapshot(tmp_path, "mine")
    assert newest_snapshot(tmp_path) == newest != older


def test_one_bit_of_the_largest_file_flips(tmp_path: Path) -> None:
    place = snapshot(tmp_path, "000000000010")
    corrupt(place)
    data = (place / "model.pt").read_bytes()
    assert len(data) == 1000
    assert sum(byte.bit_count() for byte in data) == 1
    assert (place / "manifest.json").read_text() == "{}"


def test_a_snapshot_that_has_just_been_removed_is_no_fault(tmp_path: Path) -> None:
    corrupt(tmp_path / "000000000010")
