from pathlib import Path

import pytest

from rekindle.contract.run_dir.snapshots import write_pins
from rekindle.training.snapshots.storage import directory
from rekindle.training.snapshots.storage.directory import HiddenError, SnapshotStorage, await_visible, make_directory


@pytest.fixture
def folder(tmp_path):
    return SnapshotStorage(tmp_path / "snapshots", "2-ab")


def write(folder, step, text):
    folder.temporary(step).mkdir(parents=True)
    (folder.temporary(step) / "file").write_text(text)


def publish(folder, *steps):
    for step in steps:
        write(folder, step, f"snapshot {step}")
        folder.publish(step)


def names(folder):
    return sorted(entry.name for entry in folder.root.iterdir())


def test_a_directory_that_does_not_exist_has_no_snapshots(folder):
    folder.clean_leftovers()
    assert folder.steps() == []


def test_only_published_snapshots_count_latest_first(folder):
    publish(folder, 20, 100, 3)
    write(folder, 200, "half")
    (folder.root / "notes").mkdir()
    (folder.root / "42").mkdir()
    assert folder.steps() == [100, 20, 3]


def test_a_newer_snapshot_of_the_same_step_takes_its_place(folder):
    publish(folder, 20)
    write(folder, 20, "again")
    folder.publish(20)
    assert (folder.path(20) / "file").read_text() == "again"
    assert names(folder) == ["000000000020"]


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_retention_keeps_the_latest(folder, keep):
    publish(folder, 1, 2, 3, 4)
    folder.prune(keep)
    assert folder.steps() == [4, 3, 2, 1][:keep]


@pytest.mark.parametrize("keep", [0, -3])
def test_retention_never_deletes_the_last_one(folder, keep):
    publish(folder, 1, 2)
    folder.prune(keep)
    assert folder.steps() == [2]


def test_a_quarantined_snapshot_is_kept_until_enough_newer_ones_are_safe(folder):
    publish(folder, 1, 2)
    folder.quarantine(2)
    assert folder.steps() == [1]
    publish(folder, 2)
    folder.prune(2)
    assert "quarantine-000000000002" in names(folder)
    publish(folder, 3, 4)
    folder.prune(2)
    assert names(folder) == ["000000000003", "000000000004"]


def test_leftovers_of_older_generations_are_cleaned_and_ones_own_are_not(folder):
    publish(folder, 1)
    for dead in (".tmp-1-ff-000000000009", ".trash-1-ff-000000000008", ".old-1-ff-000000000001"):
        (folder.root / dead).mkdir()
    write(folder, 10, "unfinished")
    folder.clean_leftovers()
    assert names(folder) == [".tmp-2-ab-000000000010", "000000000001"]


def test_a_snapshot_renamed_by_a_killed_replacement_comes_back(folder):
    publish(folder, 1)
    folder.path(1).rename(folder.root / ".old-1-ff-000000000001")
    folder.clean_leftovers()
    assert (folder.path(1) / "file").read_text() == "snapshot 1"


def test_the_best_one_is_kept_in_addition_to_the_latest(folder):
    publish(folder, 1, 2, 3, 4)
    folder.prune(2, best=1)
    assert folder.steps() == [4, 3, 1]
    folder.prune(2, best=4)
    assert folder.steps() == [4, 3]


@pytest.fixture
def pinning(tmp_path):
    return SnapshotStorage(tmp_path / "snapshots", "2-ab", tmp_path / "pins.json")


def test_pinned_ones_stay_whatever_comes_after_them(pinning):
    publish(pinning, 1, 2, 3, 4)
    write_pins(pinning.pins, {1, 3})
    pinning.prune(1)
    assert pinning.steps() == [4, 3, 1]
    write_pins(pinning.pins, set())
    pinning.prune(1)
    assert pinning.steps() == [4]


def test_a_pin_that_comes_while_a_snapshot_is_deleted_brings_it_back(pinning, monkeypatch):
    publish(pinning, 1, 2)
    answers = iter([frozenset(), frozenset({1})])
    monkeypatch.setattr(directory, "read_pins", lambda _: next(answers))
    pinning.prune(1)
    assert names(pinning) == ["000000000001", "000000000002"]
    assert (pinning.path(1) / "file").read_text() == "snapshot 1"


def test_a_pinned_one_that_a_kill_left_in_the_trash_comes_back(pinning):
    publish(pinning, 1, 2)
    for step in (1, 2):
        pinning.path(step).rename(pinning.root / f".trash-1-ff-{step:012}")
    (pinning.root / ".trash-nonsense").mkdir()
    write_pins(pinning.pins, {1})
    pinning.clean_leftovers()
    assert names(pinning) == ["000000000001"]


@pytest.mark.parametrize("told", ["", "[]", '{"steps": 3}', '{"steps": ["1", null]}'])
def test_senseless_pins_are_none(pinning, told):
    pinning.pins.write_text(told)
    publish(pinning, 1, 2)
    pinning.prune(1)
    assert pinning.steps() == [2]


def test_what_another_machine_has_written_is_waited_for(tmp_path):
    found = []

    def check():
        found.append(True)
        if len(found) < 3:
            raise HiddenError("rank-1.pt is missing")
        return "seen"

    assert await_visible(check, tmp_path, timeout=60) == "seen"
    with pytest.raises(HiddenError):
        await_visible(lambda: verify_missing(tmp_path), tmp_path, timeout=0.0)


def verify_missing(folder):
    directory.verify(folder, step=1, job_id=None)


def test_a_rename_whose_answer_was_lost_counts(folder, monkeypatch):
    publish(folder, 10)
    rename = Path.rename

    def rename_and_fail(self, target):
        rename(self, target)
        if self.name.startswith(".tmp"):
            raise FileNotFoundError(self)  # as a second try over a network finds it

    write(folder, 10, "again")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename_and_fail)
        folder.publish(10)
    assert (folder.path(10) / "file").read_text() == "again"
    assert names(folder) == ["000000000010"]


def test_a_directory_that_another_machine_makes_is_the_same(tmp_path):
    for _ in range(2):
        make_directory(tmp_path / "a" / "b", 0.0)
    (tmp_path / "file").write_text("")
    with pytest.raises(HiddenError):
        make_directory(tmp_path / "file", 0.0)
