"""An injected fault damages the latest committed snapshot, by one bit, and nothing else."""

from pathlib import Path

import pytest

from rekindle.contract.chaos import Fault
from rekindle.contract.run_dir.control import ControlMessage, MessageType
from rekindle.contract.run_dir.journal import RecordType, read_journal
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.buffered_journal import BufferedJournal
from rekindle.keeper.fault_injection import corrupt, inject_fault, latest_snapshot
from rekindle.keeper.ranks.table import RankTable


def snapshot(folder: Path, name: str, *, committed: bool = True) -> Path:
    path = folder / name
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


def test_one_bit_of_the_largest_file_flips(tmp_path: Path) -> None:
    target = snapshot(tmp_path, "000000000010")
    corrupt(target)
    data = (target / "model.pt").read_bytes()
    assert len(data) == 1000
    assert sum(byte.bit_count() for byte in data) == 1
    assert (target / "manifest.json").read_text() == "{}"


def test_a_snapshot_that_has_just_been_removed_is_no_fault(tmp_path: Path) -> None:
    corrupt(tmp_path / "000000000010")


@pytest.mark.parametrize(
    ("rank", "fault"), [(7, Fault.KILL), (None, Fault.KILL), (0, None), (None, Fault.CORRUPT_SNAPSHOT)]
)
def test_a_fault_without_a_target_is_not_injected(tmp_path: Path, rank: int | None, fault: Fault | None) -> None:
    run_dir = RunDir(tmp_path)
    ranks, journal = RankTable(run_dir.attempt(1), world_size=1), BufferedJournal(run_dir.journal, lambda _: None)
    message = ControlMessage(MessageType.CHAOS, attempt=1, rank=rank, fault=fault)
    inject_fault(message, run_dir, 1, ranks, 1, journal)
    assert list(read_journal(run_dir.journal)) == []


def test_a_damaged_snapshot_is_recorded_without_a_rank(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    run_dir.snapshots.mkdir()
    snapshot(run_dir.snapshots, "000000000010")
    ranks, journal = RankTable(run_dir.attempt(1), world_size=1), BufferedJournal(run_dir.journal, lambda _: None)
    message = ControlMessage(MessageType.CHAOS, attempt=1, rank=5, fault=Fault.CORRUPT_SNAPSHOT)
    inject_fault(message, run_dir, 1, ranks, 1, journal)
    (record,) = read_journal(run_dir.journal)
    assert (record.type, record.rank, record.snapshot) == (RecordType.FAULT_INJECTED, None, 10)
