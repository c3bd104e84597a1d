"""Damage on request hits the newest committed snapshot, by one bit, and nothing else."""

from pathlib import Path

from rekindle.contract.run_dir.journal import RecordType, read_journal
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.injection import Injector, corrupt, newest_snapshot
from rekindle.keeper.patient_journal import PatientJournal
from rekindle.keeper.roster import Roster


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


def test_nonsense_for_a_rank_never_reaches_the_journal(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    run_dir.snapshots.mkdir()
    snapshot(run_dir.snapshots, "000000000010")
    roster, journal = Roster(run_dir.attempt(1), world_size=1), PatientJournal(run_dir.journal, lambda _: None)
    for nonsense in (float("inf"), 10**400, {"a": []}):
        message = {"attempt": 1, "fault": "corrupt-snapshot", "rank": nonsense}
        Injector(run_dir, run_dir.attempt(1), journal).inject(message, roster, agent=1)
    records = list(read_journal(run_dir.journal))
    assert [(record.type, record.rank) for record in records] == [(RecordType.FAULT_INJECTED, None)] * 3
