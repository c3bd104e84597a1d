"""Snapshots in the memory of several machines: what is left when some are lost, is damaged, or does not fit."""

import shutil
from pathlib import Path

import pytest

from disks import tmpfs
from machine_ranks import Machine, MachineRanks, stale_view
from plain_torchrun import EXACT, assert_same_result, lines, snapshot_steps
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.snapshot_dir import SnapshotDir, write_void_attempt

SCRIPT = "node_copies.py"


@pytest.fixture(scope="module")
def ranks():
    process = MachineRanks()
    yield process
    process.kill()


@pytest.fixture
def run_dir(tmp_path):
    found = RunDir(tmp_path / "job")
    found.root.mkdir()
    found.snapshots.mkdir()
    return found


@pytest.fixture
def machines(tmp_path):
    """Three, in real shared memory."""
    root = Path("/dev/shm") / f"machines-{tmp_path.parent.name}-{tmp_path.name}"  # noqa: S108
    found = [Machine(root / str(number)) for number in range(3)]
    for machine in found:
        machine.memory.mkdir(parents=True)
    yield found
    shutil.rmtree(root)


@pytest.fixture
def attempt(ranks, run_dir):
    def run(number, machines, *args, count=1, **environment):
        ended = ranks.attempt(run_dir, number, machines, SCRIPT, *args, ranks=count, **environment)
        assert ended.codes == [0] * len(ended.codes), ended.outputs
        return ended.answers

    return run


def damage(path, place=100):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def came_back(answers):
    """Step, and whether it is from the disk, as all ranks agree; each has the bits that were saved."""
    assert all(found[0]["same"] for found in answers), answers
    ((step, from_disk),) = {(found[0]["step"], found[0]["from_disk"]) for found in answers}
    return step, from_disk


@pytest.mark.parametrize(("sharded", "lost"), [({}, 0), ({"SHARDED": "1"}, 1), ({"SHARDED": "hybrid"}, 0)])
def test_one_lost_machine_of_two_costs_nothing(attempt, machines, sharded, lost):
    first, second, spare = machines
    assert attempt(1, [first, second], "save", "10d", "11", "12", count=2, **sharded) == [[None] * 3] * 4
    assert [path.parent.name for path in first.files("0*/manifest.json")] == ["000000000012"]
    machines[lost].lose()
    left = [machine for number, machine in enumerate(machines) if number != lost]
    assert came_back(attempt(2, left, "restore", count=2, **sharded)) == (12, False)
    assert not [*first.files(".tmp*"), *second.files(".tmp*"), *spare.files(".tmp*")]


@pytest.mark.parametrize("sharded", [{}, {"SHARDED": "1"}], ids=["whole", "sharded"])
def test_other_numbers_of_machines_and_ranks_resume_from_memory_too(attempt, machines, sharded):
    first, second, third = machines
    attempt(1, [first, second], "save", "11", count=2, **sharded)
    first.lose()
    alone = attempt(2, [second], "restore", "save", "12", count=2, **sharded)
    assert came_back(alone) == (11, False)
    assert [found[0]["former"] for found in alone] == [[0, 2], [1, 3]]
    assert {path.parts[-3] for path in second.files("*/*")} == {"2-test-n0"}, "what is older is deleted"
    grown = attempt(3, [third, first, second], "restore", "save", "13", count=1, **sharded)
    assert came_back(grown) == (12, False)
    assert [found[0]["former"] for found in grown] == [[0], [1], []]
    second.lose()
    assert came_back(attempt(4, [first, third], "restore", count=1, **sharded)) == (13, False)


def test_what_no_machine_has_any_more_comes_from_the_disk(attempt, machines):
    first, second, third = machines
    attempt(1, machines, "save", "10d", "11", WEIGHT_COLUMNS="1000")
    first.lose()
    second.lose()  # the neighbour of the first
    assert came_back(attempt(2, [first, second, third], "restore", WEIGHT_COLUMNS="1000")) == (10, True)
    answers = attempt(3, [second, third], "restore", "save", "12", "13d", "restore", WEIGHT_COLUMNS="1000")
    assert came_back([found[-1:] for found in answers]) == (13, True), "it is as late"


def test_damaged_parts_are_taken_from_another_machine_and_else_from_the_disk(attempt, machines):
    first, second, _ = machines
    attempt(1, [first, second], "save", "10d", "11", SHARDED="1", WEIGHT_COLUMNS="1000")
    for name in ("model.pt", "rank-0.pt", "shards-0.pt"):
        damage(*first.files(f"0*/{name}"))
    damage(*second.files("0*/shards-1.pt"), place=-30)
    assert came_back(attempt(2, [first, second], "restore", SHARDED="1", WEIGHT_COLUMNS="1000")) == (11, False)
    first.files("0*/shards-1.pt")[0].unlink()
    assert came_back(attempt(3, [first, second], "restore", SHARDED="1", WEIGHT_COLUMNS="1000")) == (10, True)
    first.files("0*/manifest.json")[0].unlink()
    assert came_back(attempt(4, [second, first], "restore", SHARDED="1", WEIGHT_COLUMNS="1000")) == (10, True)


def test_after_a_rollback_nothing_later_is_used_on_any_machine(attempt, machines, run_dir):
    first, second, _ = machines
    attempt(1, [first, second], "save", "10d", "11", WEIGHT_COLUMNS="1000")
    write_void_attempt(run_dir.memory_void, 1)
    answers = attempt(2, [first, second], "restore", "save", "11", "restore", WEIGHT_COLUMNS="1000")
    assert came_back(answers) == (10, True)
    assert came_back([found[-1:] for found in answers]) == (11, False)


def test_memory_that_one_machine_lacks_costs_all_their_copies_and_no_more(attempt, machines, tmp_path):
    first, second, _ = machines
    with tmpfs(tmp_path / "little", "16m"):  # two parts of 12 MB would not fit
        first.memory = tmp_path / "little"
        for answer in attempt(1, [second, first], "save", "11", "10d"):
            assert str(answer[0]).startswith("on node 1, ")
            assert answer[1] is None
    assert not second.files("0*")


@pytest.mark.parametrize(("fault", "lost"), [("1:11:SIGKILL", 1), ("0:>8:publish+", 0), ("1:>8:publish", 0)])
def test_a_training_continues_from_memory_with_the_same_bits(ranks, run_dir, machines, exact_training, fault, lost):
    first, second, third = machines
    ended = ranks.attempt(run_dir, 1, [first, second], EXACT, COPIES="1", FAULT=fault)
    assert -9 in ended.codes, ended.outputs
    machines[lost].lose()
    ended = ranks.attempt(run_dir, 2, [third, machines[1 - lost]], EXACT, COPIES="1")
    assert ended.codes == [0, 0], ended.outputs
    for rank in range(2):
        trained = [step for step, _ in lines(run_dir.root / f"losses-{rank}.jsonl")]
        assert trained.count(1) == trained.count(7) == 1
    assert_same_result(run_dir.root, exact_training)
    assert snapshot_steps(run_dir.root) == [21]
    assert not [*machines[1 - lost].files("*"), *third.files("*")], ended.outputs


@pytest.fixture
def stale(machines, run_dir, tmp_path):
    """Two machines that see the directory of snapshots through caches, one longer than the other."""
    with (
        stale_view(run_dir.snapshots, tmp_path / "first", 1.0),
        stale_view(run_dir.snapshots, tmp_path / "second", 4.0),
    ):
        machines[0].views = {run_dir.snapshots: tmp_path / "first"}
        machines[1].views = {run_dir.snapshots: tmp_path / "second"}
        yield machines[:2]


def test_what_a_network_file_system_still_hides_is_waited_for(attempt, stale, run_dir):
    small = {"WEIGHT_COLUMNS": "1000", "SHARDED": "1"}
    assert attempt(1, stale, "save", "10d", PEEK="1", **small) == [[None], [None]]
    hidden = f"seen:{SnapshotDir(run_dir.snapshots).path(10).name}"
    answers = attempt(2, stale[::-1], hidden, "restore", **small)
    assert [found[0] for found in answers] == [False, True], "the cache of the second machine is not stale"
    assert came_back([found[1:] for found in answers]) == (10, True)
    (run_dir.root / "peeked").unlink()
    answers = attempt(3, stale, "restore", "save", "20d", PEEK="1", **small)
    assert [found[1] for found in answers] == [None, None]
    assert came_back(attempt(4, stale, "restore", **small)) == (20, True)
