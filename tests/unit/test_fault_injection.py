"""An injected fault damages the latest committed snapshot, by one bit, and nothing else."""

from pathlib import Path
from typing import Any

from rekindle.contract.run_dir.control_messages import ControlMessage, Fault, MessageType
from rekindle.contract.run_dir.journal import RecordType, read_journal
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.attempt.attempt_processes import corrupt, inject_fault, latest_snapshot
from rekindle.keeper.buffered_journal import BufferedJournal
from rekindle.keeper.rank_processes.table import RankTable


def snapshot(directory: Path, name: str, *, committed: bool = True) -> Path:
    path = directory / name
    path.mkdir()
    (path / "model.pt").write_bytes(bytes(1000))
    if committed:
        (path / "manifest.json").write_text("{}")
    return path


def test_the_latest_committed_snapshot_is_chosen(tmp_path: Path) -> None:
    assert latest_snapshot(tmp_path) is None
    assert latest_snapshot(tmp_path / "missing") is None
    older, latest = snapshot(tmp_path, "000000000009"), snapshot(tmp_path, "000000000010")
    snapshot(tmp_path, "000000000011", committed=False)
    snapshot(tmp_path, ".tmp-x-12")
    snapshot(tmp_path, "mine")
    assert latest_snapshot(tmp_path) == latest != older


def test_one_bit_of_the_largest_file_flips_unless_the_snapshot_has_just_been_removed(tmp_path: Path) -> None:
    corrupt(tmp_path / "000000000010")
    target = snapshot(tmp_path, "000000000010")
    corrupt(target)
    data = (target / "model.pt").read_bytes()
    assert len(data) == 1000
    assert sum(byte.bit_count() for byte in data) == 1
    assert (target / "manifest.json").read_text() == "{}"


def injected(run_dir: RunDir, rank: int | None, fault: Fault | None) -> list[Any]:
    ranks, journal = RankTable(run_dir.attempt(1), world_size=1), BufferedJournal(run_dir.journal, lambda _: None)
    inject_fault(ControlMessage(MessageType.CHAOS, attempt=1, rank=rank, fault=fault), run_dir, 1, ranks, 1, journal)
    return list(read_journal(run_dir.journal))


def test_a_fault_without_a_target_is_not_injected(tmp_path: Path) -> None:
    for rank, fault in ((7, Fault.KILL), (None, Fault.KILL), (0, None), (None, Fault.CORRUPT_SNAPSHOT)):
        assert injected(RunDir(tmp_path), rank, fault) == []


def test_a_damaged_snapshot_is_recorded_without_a_rank(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    run_dir.snapshots.mkdir()
    snapshot(run_dir.snapshots, "000000000010")
    (record,) = injected(run_dir, 5, Fault.CORRUPT_SNAPSHOT)
    assert (record.type, record.rank, record.snapshot) == (RecordType.FAULT_INJECTED, None, 10)
