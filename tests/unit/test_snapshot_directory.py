from pathlib import Path

import pytest

from rekindle.contract.run_dir.snapshot_dir import write_pins
from rekindle.training.snapshots import directory
from rekindle.training.snapshots.directory import HiddenError, SnapshotStorage, await_visible, make_directory


@pytest.fixture
def storage(tmp_path):
    return SnapshotStorage(tmp_path / "snapshots", "2-ab", tmp_path / "pins.json")


def write(storage, step, text):
    storage.temporary(step).mkdir(parents=True)
    (storage.temporary(step) / "file").write_text(text)


def publish(storage, *steps):
    for step in steps:
        write(storage, step, f"snapshot {step}")
        storage.publish(step)


def names(storage):
    return sorted(entry.name for entry in storage.root.iterdir())


def test_only_published_snapshots_count_latest_first(storage):
    storage.clean_leftovers()
    assert storage.steps() == [], "its directory does not exist"
    publish(storage, 20, 100, 3)
    write(storage, 200, "half")
    (storage.root / "notes").mkdir()
    (storage.root / "42").mkdir()
    assert storage.steps() == [100, 20, 3]


@pytest.mark.parametrize(("keep", "kept"), [(-3, 1), (0, 1), (1, 1), (2, 2), (5, 4)])
def test_retention_keeps_the_latest_and_never_deletes_the_last_one(storage, keep, kept):
    publish(storage, 1, 2, 3, 4)
    storage.prune(keep)
    assert storage.steps() == [4, 3, 2, 1][:kept]


def test_a_quarantined_snapshot_is_kept_until_enough_newer_ones_are_safe(storage):
    publish(storage, 1, 2)
    storage.quarantine(2)
    assert storage.steps() == [1]
    publish(storage, 2)
    storage.prune(2)
    assert "quarantine-000000000002" in names(storage)
    publish(storage, 3, 4)
    storage.prune(2)
    assert names(storage) == ["000000000003", "000000000004"]


def test_leftovers_of_older_generations_are_cleaned_and_ones_own_are_not(storage):
    publish(storage, 1)
    for dead in (".tmp-1-ff-000000000009", ".trash-1-ff-000000000008", ".old-1-ff-000000000001"):
        (storage.root / dead).mkdir()
    write(storage, 10, "unfinished")
    storage.clean_leftovers()
    assert names(storage) == [".tmp-2-ab-000000000010", "000000000001"]


def test_the_best_one_and_pinned_ones_are_kept_in_addition_to_the_latest(storage):
    publish(storage, 1, 2, 3, 4)
    storage.prune(3, best=1)
    assert storage.steps() == [4, 3, 2, 1]
    write_pins(storage.pins, {1, 3})
    storage.prune(1, best=4)
    assert storage.steps() == [4, 3, 1]
    write_pins(storage.pins, set())
    storage.prune(1)
    assert storage.steps() == [4]


def test_a_pin_that_comes_while_a_snapshot_is_deleted_brings_it_back(storage, monkeypatch):
    publish(storage, 1, 2)
    answers = iter([frozenset(), frozenset({1})])
    monkeypatch.setattr(directory, "read_pins", lambda _: next(answers))
    storage.prune(1)
    assert names(storage) == ["000000000001", "000000000002"]
    assert (storage.path(1) / "file").read_text() == "snapshot 1"


def test_one_renamed_by_a_killed_replacement_and_a_pinned_one_in_the_trash_come_back(storage):
    publish(storage, 1, 2, 3)
    for step, renamed in ((1, ".trash"), (2, ".trash"), (3, ".old")):
        storage.path(step).rename(storage.root / f"{renamed}-1-ff-{step:012}")
    (storage.root / ".trash-nonsense").mkdir()
    write_pins(storage.pins, {1})
    storage.clean_leftovers()
    assert names(storage) == ["000000000001", "000000000003"]
    assert (storage.path(3) / "file").read_text() == "snapshot 3"


@pytest.mark.parametrize("text", ["", "[]", '{"steps": 3}', '{"steps": ["1", null]}'])
def test_malformed_pins_are_ignored(storage, text):
    storage.pins.write_text(text)
    publish(storage, 1, 2)
    storage.prune(1)
    assert storage.steps() == [2]


def test_what_another_machine_has_written_is_waited_for(tmp_path):
    found = []

    def check():
        found.append(True)
        if len(found) < 3:
            raise HiddenError("rank-1.pt is missing")
        return "seen"

    assert await_visible(check, tmp_path, timeout=60) == "seen"
    with pytest.raises(HiddenError):
        await_visible(lambda: directory.verify(tmp_path, step=1, job_id=None), tmp_path, timeout=0.0)


@pytest.mark.parametrize("answer_is_lost", [False, True])
def test_a_later_snapshot_of_the_same_step_takes_its_place(storage, monkeypatch, answer_is_lost):
    publish(storage, 10)
    rename = Path.rename

    def rename_and_fail(self, target):
        rename(self, target)
        if answer_is_lost and self.name.startswith(".tmp"):
            raise FileNotFoundError(self)  # as a second try over a network finds it

    write(storage, 10, "again")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename_and_fail)
        storage.publish(10)
    assert (storage.path(10) / "file").read_text() == "again"
    assert names(storage) == ["000000000010"]


def test_a_directory_that_another_machine_makes_is_the_same(tmp_path):
    for _ in range(2):
        make_directory(tmp_path / "a" / "b", 0.0)
    (tmp_path / "file").write_text("")
    with pytest.raises(HiddenError):
        make_directory(tmp_path / "file", 0.0)
