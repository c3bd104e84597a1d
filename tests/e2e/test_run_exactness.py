"""What a kill, a drain or a bad disk may not change: real torchrun, real ranks, no service."""

import shutil
from collections import Counter

import pytest

from disks import tmpfs
from plain_torchrun import EXACT, assert_same_result, cold_torchrun, digests, history, lines, snapshot_steps, torchrun

LENGTH, EPOCHS, STEPS = 101, 3, 21
KILLED_AT = 11  # in the middle of the second epoch; the latest snapshot is of step 9
BEFORE = 9


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A training of two ranks of which one was killed in mid-epoch."""
    directory = tmp_path_factory.mktemp("killed")
    assert torchrun(2, [EXACT], directory, FAULT=f"1:{KILLED_AT}:SIGKILL").code == 1
    assert snapshot_steps(directory)[-1] == BEFORE
    return directory


@pytest.fixture
def interrupted(killed, tmp_path):
    """A copy of the killed training, to be continued."""
    return shutil.copytree(killed, tmp_path / "interrupted")


def assert_same_training(directory, expected):
    """Weights, momentum, random numbers, losses, metrics and samples are those of the undisturbed training."""
    assert_same_result(directory, expected)
    for found, wanted in zip(digests(directory), digests(expected), strict=True):
        assert found["accuracy"].items() <= wanted["accuracy"].items()
        assert "2" in found["accuracy"]
    for rank in range(2):
        curve = dict(lines(directory / f"losses-{rank}.jsonl"))
        assert curve == dict(lines(expected / f"losses-{rank}.jsonl"))


def assert_each_sample_once_an_epoch(steps):
    trained = {epoch: Counter() for epoch in range(EPOCHS)}
    for epoch, ids in steps.values():
        trained[epoch].update(ids)
    assert trained == {epoch: Counter(range(LENGTH)) for epoch in range(EPOCHS)}


def test_every_sample_is_trained_once_an_epoch(exact_training):
    assert list(history(exact_training, 2)) == list(range(1, STEPS + 1))
    assert_each_sample_once_an_epoch(history(exact_training, 2))


def test_a_finished_training_started_again_does_nothing(exact_training, tmp_path):
    again = shutil.copytree(exact_training, tmp_path / "again")
    ended = torchrun(2, [EXACT], again)
    assert ended.code == 0, ended.output
    assert (again / "losses-0.jsonl").read_bytes() == (exact_training / "losses-0.jsonl").read_bytes()
    assert digests(again)[0] == {**digests(exact_training)[0], "accuracy": {}}


def test_a_training_killed_in_mid_epoch_ends_bit_identical_even_with_other_loaders(interrupted, exact_training):
    ended = torchrun(2, [EXACT], interrupted, WORKERS="1")
    assert ended.code == 0, ended.output
    assert_same_training(interrupted, exact_training)
    assert [step for step, _ in lines(interrupted / "losses-0.jsonl")].count(BEFORE) == 1


def test_a_damaged_latest_snapshot_costs_only_the_steps_since_the_one_before(interrupted, exact_training):
    latest = interrupted / "snapshots" / f"{BEFORE:012d}" / "rank-1.pt"
    data = bytearray(latest.read_bytes())
    data[len(data) // 2] ^= 1
    latest.write_bytes(data)
    ended = torchrun(2, [EXACT], interrupted)
    assert ended.code == 0, ended.output
    assert ended.output.count("snapshot 9 skipped: rank-1.pt fails its checksum") == 1
    assert_same_training(interrupted, exact_training)


def test_another_world_size_trains_the_same_batches_and_each_sample_once(interrupted, exact_training):
    before = {step: history(interrupted, 2)[step] for step in range(1, BEFORE + 1)}
    for rank in range(2):
        (interrupted / f"samples-{rank}.jsonl").unlink()
    ended = torchrun(3, [EXACT], interrupted)
    assert ended.code == 0, ended.output
    after = history(interrupted, 3)
    assert min(after) == BEFORE + 1
    assert before | after == history(exact_training, 2)
    assert_each_sample_once_an_epoch(before | after)


def test_a_signal_to_one_rank_stops_all_at_the_same_step_and_costs_no_step(tmp_path, exact_training):
    ended = cold_torchrun(2, [EXACT], tmp_path, FAULT=f"1:{KILLED_AT}:SIGTERM")
    assert ended.code == 1
    assert "exitcode  : 75" in ended.output
    last = [lines(tmp_path / f"samples-{rank}.jsonl")[-1][0] for rank in range(2)]
    assert last[0] == last[1] == snapshot_steps(tmp_path)[-1]
    assert KILLED_AT <= last[0] <= KILLED_AT + 1
    assert torchrun(2, [EXACT], tmp_path).code == 0
    assert_same_training(tmp_path, exact_training)
    assert [step for step, _ in lines(tmp_path / "losses-1.jsonl")] == list(range(1, STEPS + 1))


def test_a_full_disk_stops_saving_and_not_training_and_its_last_snapshot_is_good(tmp_path, exact_training):
    disk, saved = tmp_path / "snapshots", tmp_path / "saved"
    with tmpfs(disk, "64m"):
        ended = torchrun(2, [EXACT], tmp_path, BALLAST="24")
        kept = snapshot_steps(tmp_path)
        leftovers = [entry.name for entry in disk.iterdir() if not entry.name.isdecimal()]
        shutil.copytree(disk, saved)
    assert ended.code == 0, ended.output
    assert "not saved, training continues: the disk is full or read-only" in ended.output
    assert (kept, leftovers) == ([3, 6], [])
    assert_same_training(tmp_path, exact_training)
    shutil.copytree(saved, disk, dirs_exist_ok=True)
    assert torchrun(2, [EXACT], tmp_path, BALLAST="24").code == 0
    assert_same_training(tmp_path, exact_training)
    assert [step for step, _ in lines(tmp_path / "losses-0.jsonl")].count(kept[-1] + 1) == 2


def test_training_continues_while_a_snapshot_is_written_and_the_snapshot_is_of_its_own_step(tmp_path, exact_training):
    ahead = {"LEAD": "2", "FAULT": f"1:{KILLED_AT}:SIGKILL"}
    assert torchrun(2, [EXACT], tmp_path, **ahead).code == 1
    leads = [lead for step, lead in lines(tmp_path / "leads-0.jsonl") if step < KILLED_AT]
    assert max(leads) >= 2
    assert snapshot_steps(tmp_path)
    assert torchrun(2, [EXACT], tmp_path).code == 0
    assert_same_training(tmp_path, exact_training)


@pytest.mark.parametrize(
    ("rank", "call", "latest"),
    [
        (1, "write_state+", 6),  # rank 0 waits for a part that never comes
        (0, "write_manifest", 6),  # all parts are there
        (0, "publish+", 9),  # rank 1 waits for the result
    ],
)
def test_a_kill_while_a_snapshot_is_written_costs_that_snapshot_at_most(tmp_path, exact_training, rank, call, latest):
    ended = torchrun(2, [EXACT], tmp_path, FAULT=f"{rank}:9:{call}")
    assert ended.code == 1
    assert snapshot_steps(tmp_path)[-1] == latest
    again = torchrun(2, [EXACT], tmp_path)
    assert again.code == 0, again.output
    assert_same_training(tmp_path, exact_training)
    assert not list((tmp_path / "snapshots").glob(".*"))


def test_when_snapshots_are_due_too_often_some_are_skipped_and_the_page_shows_it(tmp_path, exact_training):
    ended = torchrun(2, [EXACT], tmp_path, LEAD="5")
    assert ended.code == 0, ended.output
    assert "snapshots are due faster than they can be written: one was skipped" in ended.output
    assert [step for step, _ in lines(tmp_path / "leads-1.jsonl")] == [
        step for step, _ in lines(tmp_path / "leads-0.jsonl")
    ]
    assert_same_training(tmp_path, exact_training)
