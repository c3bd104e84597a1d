from pathlib import Path

import pytest

from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.snapshot_dir import read_void_attempt
from rekindle.keeper.supervisor import roll_back


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path)
    for step in (10, 20, 30):
        directory = run_dir.snapshots / f"{step:012}"
        directory.mkdir(parents=True)
        (directory / "manifest.json").write_text(str(step))
    (run_dir.snapshots / ".tmp-1-000000000040").mkdir()
    return run_dir


def names(run_dir: RunDir) -> list[str]:
    return sorted(entry.name for entry in run_dir.snapshots.iterdir() if not entry.name.startswith("."))


def test_later_snapshots_are_quarantined_whole_and_replace_earlier_ones(run_dir: RunDir) -> None:
    earlier = run_dir.snapshots / "quarantine-000000000030"
    earlier.mkdir()
    (earlier / "manifest.json").write_text("older")
    assert roll_back(run_dir, 10) == [20, 30]
    assert names(run_dir) == ["000000000010", "quarantine-000000000020", "quarantine-000000000030"]
    assert (earlier / "manifest.json").read_text() == "30"


def test_repeating_it_after_a_kill_in_the_middle_ends_the_same(run_dir: RunDir) -> None:
    (run_dir.snapshots / "000000000020").rename(run_dir.snapshots / "quarantine-000000000020")
    assert roll_back(run_dir, 10) == [30]
    assert roll_back(run_dir, 10) == []
    assert names(run_dir) == ["000000000010", "quarantine-000000000020", "quarantine-000000000030"]


def test_without_the_chosen_snapshot_nothing_is_quarantined(run_dir: RunDir) -> None:
    assert roll_back(run_dir, 15) is None
    assert names(run_dir) == ["000000000010", "000000000020", "000000000030"]


def test_what_other_machines_of_a_cluster_have_in_memory_is_void_from_then_on(run_dir: RunDir) -> None:
    for attempt in (1, 2, 11):
        run_dir.attempt(attempt).root.mkdir(parents=True)
    roll_back(run_dir, 20)
    assert read_void_attempt(run_dir.memory_void) == 0, "a job on one machine has no others"
    run_dir.launch(1).root.mkdir(parents=True)
    roll_back(run_dir, 10)
    assert read_void_attempt(run_dir.memory_void) == 11
