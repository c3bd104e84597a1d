"""Which files of a script are its checkpoints, and whether an attempt has saved one."""

import os
import time
from pathlib import Path

import pytest

from rekindle.contract.files import append_line
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.script_files import FileRecord, FileUse, name_pattern
from rekindle.keeper.observers import checkpoints
from rekindle.keeper.observers.checkpoints import CheckpointTracker, move_torn
from unit.test_checkpoint_format import SAFETENSORS, TORCH


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path / "run")
    for directory in (run_dir.code, run_dir.snapshots, tmp_path / "out"):
        directory.mkdir(parents=True)
    return run_dir


def write(path: Path, data: bytes = TORCH) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def record(run_dir: RunDir, use: FileUse, path: object, attempt: int = 1, source: object = None) -> None:
    rank_dir = run_dir.attempt(attempt).rank(0)
    rank_dir.root.mkdir(parents=True, exist_ok=True)
    line = FileRecord(use, str(path), time.time(), None if source is None else str(source))
    append_line(rank_dir.files, line.to_json(), durable=False)


def begin(run_dir: RunDir, attempt: int = 1, *watch: str) -> CheckpointTracker:
    tracker = CheckpointTracker(run_dir, attempt, watch)
    record(run_dir, FileUse.TRACKED, "files.jsonl", attempt)
    return tracker


def found(tracker: CheckpointTracker) -> dict[str, bool]:
    """Completeness by file name, after the last scan."""
    tracker.finish()
    return {Path(each.path).name: each.complete for each in tracker.observed.checkpoints}


def bytes_read() -> int:
    """Bytes that this process has read, from any file."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_a_file_is_found_where_a_rank_wrote_one_like_it(run_dir: RunDir, tmp_path: Path) -> None:
    out = tmp_path / "out"
    os.utime(write(out / "epoch_0.x"), (1, 1))  # of another job
    tracker = begin(run_dir)
    record(run_dir, FileUse.WRITTEN, write(out / "epoch_1.x"))
    for name in ("epoch_2.x", "other.x"):
        write(out / name)
    assert found(tracker) == {"epoch_1.x": True, "epoch_2.x": True}
    assert tracker.saved is True


def test_the_working_directory_is_listed_for_programs_that_are_not_tracked(run_dir: RunDir) -> None:
    write(run_dir.code / "base.pt")
    tracker = begin(run_dir)
    write(run_dir.code / "deep" / "model.weights", SAFETENSORS)
    assert found(tracker) == {"base.pt": True, "model.weights": True}
    assert {each.attempt for each in tracker.observed.checkpoints} == {0, 1}, "the first was there before"


def test_the_step_printed_last_before_a_checkpoint_was_found_stays_that_of_it(run_dir: RunDir) -> None:
    tracker = begin(run_dir)
    tracker.set_estimates(30, 3, None, None)
    first = write(run_dir.code / "best.pt")
    tracker._scan(1.0)
    tracker.set_estimates(570, 57, None, None)
    tracker.finish()
    assert [(each.step, each.epoch) for each in tracker.observed.checkpoints] == [(30, 3)]
    os.utime(write(first), (2e9, 2e9))
    tracker.finish()
    assert [(each.step, each.epoch) for each in tracker.observed.checkpoints] == [(570, 57)]


def test_files_missing_from_an_incomplete_first_listing_are_judged_by_their_times(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("old_1.pt", "old_2.pt"):
        os.utime(write(run_dir.code / name), (1, 1))
    monkeypatch.setattr(checkpoints, "LAST_MAX_SECONDS", -1.0)
    tracker = begin(run_dir)
    monkeypatch.undo()
    write(run_dir.code / "new.pt")
    tracker.finish()
    assert [Path(each.path).name for each in tracker.observed.checkpoints if each.attempt] == ["new.pt"]


def test_data_logs_and_gigabytes_of_no_checkpoint_are_none(run_dir: RunDir) -> None:
    tracker = begin(run_dir)
    with (run_dir.code / "tokens.bin").open("wb") as file:
        file.truncate(4 << 30)
    write(run_dir.code / "model.pt", b"not a model")
    write(run_dir.code / "a.npy", b"\x93NUMPY" + bytes(100))
    for name in ("train.log", "events.out.tfevents.1.host.1.0"):
        write(run_dir.code / name, b"x")
    (run_dir.code / "link.pt").symlink_to(write(run_dir.root / "elsewhere.pt"))
    before = bytes_read()
    assert found(tracker) == {}
    assert bytes_read() - before < 1 << 30, "no content was read"
    record(run_dir, FileUse.WRITTEN, run_dir.code / "tokens.bin")
    assert found(tracker) == {}
    assert tracker.saved is None, "the bytes may be a state in a format of their own"


def test_it_is_not_known_whether_one_that_only_logs_or_was_never_tracked_has_saved(run_dir: RunDir) -> None:
    untracked = CheckpointTracker(run_dir, 1)
    untracked.finish()
    assert untracked.saved is None
    tracker = begin(run_dir)
    record(run_dir, FileUse.WRITTEN, write(run_dir.code / "train.log", b"x"))
    tracker.finish()
    assert tracker.saved is None
    assert tracker.loaded is False
    record(run_dir, FileUse.SPAWNED, "")
    tracker.finish()
    assert tracker.loaded is None, "another program may have loaded one"


def test_one_that_never_finishes_its_checkpoint_has_saved_nothing(run_dir: RunDir) -> None:
    tracker = begin(run_dir)
    record(run_dir, FileUse.WRITTEN, write(run_dir.code / "ckpt.pt", TORCH[:100]))
    assert found(tracker) == {"ckpt.pt": False}
    assert tracker.saved is False


def test_one_that_is_saved_in_place_is_torn_when_it_is_left_empty(run_dir: RunDir) -> None:
    tracker = begin(run_dir)
    record(run_dir, FileUse.WRITTEN, write(run_dir.code / "ckpt.pt"))
    write(run_dir.code / "empty.pt", b"")
    assert found(tracker) == {"ckpt.pt": True}
    write(run_dir.code / "ckpt.pt", b"")
    assert found(tracker) == {"ckpt.pt": False}
    assert [Path(target).name for _, target, _ in move_torn(run_dir)] == ["ckpt.pt.torn-1"]
    assert (run_dir.code / "empty.pt").exists()


def test_a_name_that_is_renamed_when_the_file_is_whole_is_no_checkpoint(run_dir: RunDir) -> None:
    tracker = begin(run_dir)
    partial, path = run_dir.code / "inflight", run_dir.code / "model"
    record(run_dir, FileUse.WRITTEN, partial)
    record(run_dir, FileUse.RENAMED, write(path), source=partial)
    write(partial, TORCH[:100])
    assert found(tracker) == {"model": True}


def test_a_directory_of_files_is_one_checkpoint(run_dir: RunDir) -> None:
    tracker = begin(run_dir)
    for name in ("checkpoint-5/model", "checkpoint-5/optimizer", "iter_10/mp_rank_00/model", "step-3/__0_0.distcp"):
        write(run_dir.code / "out" / name)
    write(run_dir.code / "out" / "checkpoint-5" / "trainer_state.json", b"{}")
    assert found(tracker) == {"checkpoint-5": True, "iter_10": True, "step-3": False}
    write(run_dir.code / "out" / "step-3" / ".metadata", b"x")
    assert found(begin(run_dir, 2))["step-3"] is False, "nothing has changed in this attempt"


def test_any_file_counts_in_the_snapshot_directory_and_in_watched_paths(run_dir: RunDir, tmp_path: Path) -> None:
    tracker = begin(run_dir, 1, "state", str(tmp_path / "out"))
    write(run_dir.code / "state" / "weights.pickle", b"x")
    write(tmp_path / "out" / "own.format", b"x")
    write(run_dir.snapshots / "anything", b"x")
    write(run_dir.snapshots / "hparams.yaml", b"x")
    write(run_dir.snapshots / "000000000040" / "model.pt")  # rekindle's own
    assert found(tracker) == {"weights.pickle": True, "own.format": True, "anything": True}


def test_what_is_loaded_differs_from_what_is_only_read_again(run_dir: RunDir) -> None:
    first = begin(run_dir)
    old, new = write(run_dir.code / "old.pt"), write(run_dir.code / "new.pt")
    os.utime(old, (1, 1))
    first.finish()
    second = begin(run_dir, 2)
    for path in (old, new, run_dir.code / "foreign.pt"):
        record(run_dir, FileUse.LOADED, path, 2)
    second.finish()
    assert second.resumed_from_path == "new.pt", "the latest of those that were loaded"
    assert second.saved is False
    assert {Path(each.path).name: each.loaded for each in second.observed.checkpoints} == {"old.pt": 2, "new.pt": 2}
    third = begin(run_dir, 3)
    record(run_dir, FileUse.WRITTEN, write(run_dir.code / "best.pt", TORCH + bytes(1)), 3)
    third.finish()
    record(run_dir, FileUse.LOADED, new, 3)
    third.finish()
    assert third.resumed_from_path is None, "a script may load its best model in the end"


@pytest.mark.parametrize("saves_first", [False, True])
def test_what_a_rank_loads_at_the_moment_of_its_first_save_is_judged_by_the_order_of_the_two(
    run_dir: RunDir, saves_first: bool
) -> None:
    """The time of a file is that of the kernel's last tick, so up to 10 ms before that of a record."""
    path = write(run_dir.code / "ckpt.pt")
    begin(run_dir).finish()
    second = begin(run_dir, 2)
    for use in (FileUse.WRITTEN, FileUse.LOADED) if saves_first else (FileUse.LOADED, FileUse.WRITTEN):
        record(run_dir, use, path, 2)
    write(path, TORCH + bytes(1))
    earlier = time.time_ns() - 200_000_000
    os.utime(path, ns=(earlier, earlier))
    second.finish()
    assert second.loaded is not saves_first


def test_an_attempt_that_saves_and_loads_none_of_the_earlier_ones_is_marked(run_dir: RunDir) -> None:
    checkpoint = run_dir.code / "ckpt.pt"
    first = begin(run_dir)
    write(checkpoint)
    first.finish()
    assert not first.observed.saves_without_loading, "there was none before"
    second = begin(run_dir, 2)
    write(checkpoint)
    second.finish()
    assert second.observed.saves_without_loading
    third = begin(run_dir, 3)
    assert not third.observed.saves_without_loading
    record(run_dir, FileUse.LOADED, checkpoint, 3)
    third.finish()
    write(checkpoint)
    third.finish()
    assert not third.observed.saves_without_loading


def test_an_attempt_whose_keeper_died_is_examined_afterwards(run_dir: RunDir) -> None:
    os.utime(write(run_dir.code / "base.pt"), (1, 1))
    begin(run_dir)
    record(run_dir, FileUse.WRITTEN, write(run_dir.code / "ckpt.pt"))
    lost = CheckpointTracker(run_dir, 1, lost=True)
    lost.finish()
    assert lost.saved is True
    assert {Path(each.path).name: each.attempt for each in lost.observed.checkpoints} == {"base.pt": 0, "ckpt.pt": 1}


def test_what_is_stored_is_bounded(run_dir: RunDir) -> None:
    tracker = begin(run_dir)
    for number in range(150):
        os.utime(write(run_dir.code / f"ckpt_{number}.pt"), (number + 1, number + 1))
    tracker.finish()
    assert len(tracker.observed.checkpoints) == 100
    assert tracker.observed.checkpoints[0].path.endswith("ckpt_149.pt")


def test_a_directory_that_lacks_a_file_of_the_one_before_is_torn(run_dir: RunDir) -> None:
    def save(step: int, *names: str) -> None:
        for name in names:
            os.utime(write(run_dir.code / f"checkpoint-{step}" / name), ns=(0, time.time_ns() - 10**9 + step))

    tracker = begin(run_dir)
    save(1, "model", "rng_state_0.pth", "trainer_state.json")
    save(2, "model", "rng_state_1.pth", "trainer_state.json", "more")
    assert found(tracker) == {"checkpoint-1": True, "checkpoint-2": True}
    save(3, "model", "more", "trainer_state.json")
    assert found(tracker) == {"checkpoint-1": True, "checkpoint-2": True, "checkpoint-3": False}
    assert [target.rpartition("/")[2] for _, target, _ in move_torn(run_dir)] == ["checkpoint-3.torn-1"]


def test_random_names_of_temporary_files_are_of_one_pattern() -> None:
    assert {name_pattern(name) for name in ("tmp11v6z3m6", "tmpabcdefgh", "tmp_1234567")} == {"tmp#"}
    assert name_pattern("epoch=3-step=14.ckpt") == name_pattern("epoch=12-step=5.ckpt") != name_pattern("epoch=3.ckpt")
