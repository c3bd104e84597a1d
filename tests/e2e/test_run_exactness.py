"""What a kill, a drain or a bad disk may not change: real torchrun, real ranks, no service."""

import json
import shutil
from collections import Counter

import pytest

from disks import tmpfs
from plain_torchrun import EXACT, cold_torchrun, history, lines, snapshot_steps, torchrun

LENGTH, EPOCHS, STEPS = 101, 3, 21
KILLED_AT = 11  # in the middle of the second epoch; the newest snapshot is of step 9
BEFORE = 9


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A training of two ranks that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    ended = cold_torchrun(2, [EXACT], folder)
    assert ended.code == 0, ended.output
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A training of two ranks of which one was killed in mid-epoch."""
    folder = tmp_path_factory.mktemp("killed")
    assert torchrun(2, [EXACT], folder, FAULT=f"1:{KILLED_AT}:SIGKILL").code == 1
    assert snapshot_steps(folder)[-1] == BEFORE
    return folder


@pytest.fixture
def interrupted(killed, tmp_path):
    """A copy of it, to go on with."""
    return shutil.copytree(killed, tmp_path / "interrupted")


def digests(folder, ranks=2):
    return [json.loads((folder / f"digest-{rank}.json").read_text()) for rank in range(ranks)]


def assert_same_training(folder, expected, ranks=2):
    """Weights, momentum, random numbers, losses, metrics and samples are those of the undisturbed training."""
    for found, wanted in zip(digests(folder, ranks), digests(expected, ranks), strict=True):
        assert (found["weights"], found["rng"], found["step"]) == (wanted["weights"], wanted["rng"], wanted["step"])
        assert found["accuracy"].items() <= wanted["accuracy"].items()
        assert "2" in found["accuracy"]
    for rank in range(ranks):
        curve = dict(lines(folder / f"losses-{rank}.jsonl"))
        assert curve == dict(lines(expected / f"losses-{rank}.jsonl"))
    assert history(folder, ranks) == history(expected, ranks)


def assert_each_sample_once_an_epoch(steps):
    trained = {epoch: Counter() for epoch in range(EPOCHS)}
    for epoch, ids in steps.values():
        trained[epoch].update(ids)
    assert trained == {epoch: Counter(range(LENGTH)) for epoch in range(EPOCHS)}


def test_every_sample_is_trained_once_an_epoch(undisturbed):
    assert list(history(undisturbed, 2)) == list(range(1, STEPS + 1))
    assert_each_sample_once_an_epoch(history(undisturbed, 2))


def test_a_finished_training_started_again_does_nothing(undisturbed, tmp_path):
    again = shutil.copytree(undisturbed, tmp_path / "again")
    ended = torchrun(2, [EXACT], again)
    assert ended.code == 0, ended.output
    assert (again / "losses-0.jsonl").read_bytes() == (undisturbed / "losses-0.jsonl").read_bytes()
    assert digests(again)[0] == {**digests(undisturbed)[0], "accuracy": {}}


def test_a_training_killed_in_mid_epoch_ends_bit_identical_even_with_other_loaders(interrupted, undisturbed):
    ended = torchrun(2, [EXACT], interrupted, WORKERS="1")
    assert ended.code == 0, ended.output
    assert_same_training(interrupted, undisturbed)
    assert [step for step, _ in lines(interrupted / "losses-0.jsonl")].count(BEFORE) == 1


def test_a_damaged_latest_snapshot_costs_only_the_steps_since_the_one_before(interrupted, undisturbed):
    newest = interrupted / "snapshots" / f"{BEFORE:012d}" / "rank-1.pt"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    ended = torchrun(2, [EXACT], interrupted)
    assert ended.code == 0, ended.output
    assert ended.output.count("snapshot 9 skipped: rank-1.pt fails its checksum") == 1
    assert_same_training(interrupted, undisturbed)


def test_another_world_size_trains_the_same_batches_and_each_sample_once(interrupted, undisturbed):
    before = {step: history(interrupted, 2)[step] for step in range(1, BEFORE + 1)}
    for rank in range(2):
        (interrupted / f"samples-{rank}.jsonl").unlink()
    ended = torchrun(3, [EXACT], interrupted)
    assert ended.code == 0, ended.output
    after = history(interrupted, 3)
    assert min(after) == BEFORE + 1
    assert before | after == history(undisturbed, 2)
    assert_each_sample_once_an_epoch(before | after)


def test_a_signal_to_one_rank_stops_all_at_the_same_step_and_costs_no_step(tmp_path, undisturbed):
    ended = cold_torchrun(2, [EXACT], tmp_path, FAULT=f"1:{KILLED_AT}:SIGTERM")
    assert ended.code == 1
    assert "exitcode  : 75" in ended.output
    last = [lines(tmp_path / f"samples-{rank}.jsonl")[-1][0] for rank in range(2)]
    assert last[0] == last[1] == snapshot_steps(tmp_path)[-1]
    assert KILLED_AT <= last[0] <= KILLED_AT + 1
    assert torchrun(2, [EXACT], tmp_path).code == 0
    assert_same_training(tmp_path, undisturbed)
    assert [step for step, _ in lines(tmp_path / "losses-1.jsonl")] == list(range(1, STEPS + 1))


def test_a_full_disk_stops_saving_and_not_training_and_its_last_snapshot_is_good(tmp_path, undisturbed):
    disk, saved = tmp_path / "snapshots", tmp_path / "saved"
    with tmpfs(disk, "64m"):
        ended = torchrun(2, [EXACT], tmp_path, BALLAST="24")
        kept = snapshot_steps(tmp_path)
        leftovers = [entry.name for entry in disk.iterdir() if not entry.name.isdecimal()]
        shutil.copytree(disk, saved)
    assert ended.code == 0, ended.output
    assert "not saved, training continues: the disk is full or read-only" in ended.output
    assert (kept, leftovers) == ([3, 6], [])
    assert_same_training(tmp_path, undisturbed)
    shutil.copytree(saved, disk, dirs_exist_ok=True)
    assert torchrun(2, [EXACT], tmp_path, BALLAST="24").code == 0
    assert_same_training(tmp_path, undisturbed)
    assert [step for step, _ in lines(tmp_path / "losses-0.jsonl")].count(kept[-1] + 1) == 2


def test_training_continues_while_a_snapshot_is_written_and_the_snapshot_is_of_its_own_step(tmp_path, undisturbed):
    ahead = {"LEAD": "2", "FAULT": f"1:{KILLED_AT}:SIGKILL"}
    assert torchrun(2, [EXACT], tmp_path, **ahead).code == 1
    leads = [lead for step, lead in lines(tmp_path / "leads-0.jsonl") if step < KILLED_AT]
    assert max(leads) >= 2
    assert snapshot_steps(tmp_path)
    assert torchrun(2, [EXACT], tmp_path).code == 0
    assert_same_training(tmp_path, undisturbed)


@pytest.mark.parametrize(
    ("rank", "call", "newest"),
    [
        (1, "write_state+", 6),  # rank 0 waits for a part that never comes
        (0, "write_manifest", 6),  # all parts are there
        (0, "publish+", 9),  # rank 1 waits for the result
    ],
)
def test_a_kill_while_a_snapshot_is_written_costs_that_snapshot_at_most(tmp_path, undisturbed, rank, call, newest):
    ended = torchrun(2, [EXACT], tmp_path, FAULT=f"{rank}:9:{call}")
    assert ended.code == 1
    assert snapshot_steps(tmp_path)[-1] == newest
    again = torchrun(2, [EXACT], tmp_path)
    assert again.code == 0, again.output
    assert_same_training(tmp_path, undisturbed)
    assert not list((tmp_path / "snapshots").glob(".*"))


def test_when_snapshots_are_due_too_often_some_are_skipped_and_the_page_shows_it(tmp_path, undisturbed):
    ended = torchrun(2, [EXACT], tmp_path, LEAD="5")
    assert ended.code == 0, ended.output
    assert "snapshots are due faster than they can be written: one was skipped" in ended.output
    assert [step for step, _ in lines(tmp_path / "leads-1.jsonl")] == [
        step for step, _ in lines(tmp_path / "leads-0.jsonl")
    ]
    assert_same_training(tmp_path, undisturbed)
