"""Snapshots of a world of one, on a real disk."""

import errno
import hashlib
import json
import os
import resource
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR, MultiStepLR

from disks import remount, tmpfs
from rekindle import SnapshotError, Snapshots, StaleGenerationError
from rekindle.contract.files import write_json
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.snapshot_dir import SnapshotDir, SnapshotFile
from rekindle.training.snapshots import directory, loader, shared_memory, writer


def shared(step):
    return {"model": {"weight": torch.full((1000,), float(step))}, "progress": {"epoch": step // 10}}


def own(step):
    return {"rng": torch.arange(step), "list": [step, None, "text"]}


def save(snapshots, *steps):
    return [snapshots.save(step, step // 10, shared(step), own(step)) for step in steps]


def steps(root):
    return sorted(int(entry.name) for entry in Path(root).iterdir() if entry.name.isdecimal())


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "snapshots"


@pytest.fixture
def snapshots(root):
    return Snapshots(root, keep_last=3)


def test_a_snapshot_comes_back_as_it_was_saved(snapshots, root):
    assert snapshots.restore() is None
    assert [result.saved for result in save(snapshots, 10, 20)] == [True, True]
    restored = Snapshots(root).restore()
    assert (restored.step, restored.epoch, restored.world_size, restored.skipped) == (20, 2, 1, [])
    assert torch.equal(restored.shared_state["model"]["weight"], shared(20)["model"]["weight"])
    assert restored.rank_states[0]["list"] == [20, None, "text"]


def test_the_manifest_has_everything_that_the_service_shows(snapshots, root):
    save(snapshots, 10)
    manifest = json.loads((root / "000000000010" / "manifest.json").read_text())
    files = {name: (root / "000000000010" / name).stat().st_size for name in ("model.pt", "rank-0.pt")}
    assert {name: record["bytes"] for name, record in manifest["files"].items()} == files
    assert manifest.items() >= {"format": 1, "job_id": None, "step": 10, "epoch": 1, "world_size": 1}.items()


def test_the_same_step_may_be_saved_again_and_the_later_state_counts(snapshots, root):
    save(snapshots, 10)
    again = Snapshots(root)
    again.restore()
    assert again.save(10, 2, {**shared(10), "later": True}, own(10)).saved
    assert Snapshots(root).restore().shared_state["later"] is True
    assert steps(root) == [10]


@pytest.mark.parametrize("name", ["model.pt", "rank-0.pt", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "remove", "zero page"])
def test_a_damaged_latest_snapshot_is_quarantined_and_training_continues_from_the_one_before(
    snapshots, root, name, damage, caplog
):
    save(snapshots, 10, 20)
    path = root / "000000000020" / name
    size = path.stat().st_size
    match damage:
        case "flip":
            flip(path, size // 3)
        case "truncate":
            os.truncate(path, size - 2)
        case "empty":
            os.truncate(path, 0)
        case "remove":
            path.unlink()
        case "zero page":
            path.write_bytes(bytes(size))
    resumed = Snapshots(root)
    restored = resumed.restore()
    assert restored.step == 10
    assert [each.step for each in restored.skipped] == [20]
    assert "snapshot 20 skipped: " in caplog.text
    assert (root / "quarantine-000000000020").is_dir()
    assert steps(root) == [10]
    save(resumed, 20)
    assert Snapshots(root).restore().step == 20


def test_when_every_snapshot_is_bad_none_is_used(snapshots, root):
    save(snapshots, 10, 20)
    for step in (10, 20):
        flip(root / f"{step:012d}" / "model.pt", 500)
    assert Snapshots(root).restore() is None
    assert steps(root) == []


def test_an_unfinished_snapshot_of_a_killed_attempt_is_neither_used_nor_kept(snapshots, root):
    save(snapshots, 10)
    torn = root / ".tmp-dead-000000000020"
    torn.mkdir()
    (torn / "model.pt").write_bytes(b"half")
    assert Snapshots(root).restore().step == 10
    assert not torn.exists()


class Custom:
    pass


@pytest.fixture
def evil(tmp_path):
    """An object that makes a directory when it is unpickled."""

    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "pwned"),))

    yield Evil()
    assert not (tmp_path / "pwned").exists()


def test_state_that_could_never_be_loaded_again_is_refused_before_it_is_needed(snapshots, root, evil):
    for state, name in ((Custom(), "Custom"), (evil, "Evil")):
        with pytest.raises(SnapshotError, match=rf"rank 0 cannot be .*: model is a .*\.{name}; put only tensors"):
            snapshots.save(10, 1, {"model": state}, {})
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("name", ["model.pt", "rank-0.pt"])
def test_a_planted_pickle_is_skipped_and_never_run(snapshots, root, evil, name):
    save(snapshots, 10, 20)
    latest = SnapshotDir(root).path(20)
    torch.save({"weight": evil}, latest / name)
    manifest = SnapshotDir(root).manifest(20)
    data = (latest / name).read_bytes()
    files = {**manifest.files, name: SnapshotFile(len(data), hashlib.sha256(data).hexdigest())}
    (latest / "manifest.json").write_bytes(replace(manifest, files=files).encoded())
    assert Snapshots(root).restore().step == 10


def test_a_snapshot_with_a_problem_is_not_committed(snapshots, root, caplog):
    save(snapshots, 10)
    snapshots.async_save(20, 2, shared(20), own(20), validator=lambda state: f"{list(state)} are bad")
    result = snapshots.wait()
    assert (result.saved, result.invalid) == (False, True)
    assert steps(root) == [10]
    assert "snapshot 20 not saved: ['model', 'progress'] are bad" in caplog.text


@pytest.fixture
def fenced(tmp_path, monkeypatch):
    run_dir = RunDir(tmp_path)
    monkeypatch.setenv("REKINDLE_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("REKINDLE_SNAPSHOT_DIR", str(run_dir.snapshots))
    monkeypatch.setenv("REKINDLE_JOB_ID", "job-1")
    monkeypatch.setenv("REKINDLE_GENERATION", "1-ab")
    write_json(run_dir.fence, {"generation": "1-ab"})
    return run_dir


def test_a_zombie_of_an_older_generation_or_without_its_fence_commits_nothing_and_disturbs_nothing(fenced):
    zombie = Snapshots()
    save(zombie, 10)
    write_json(fenced.fence, {"generation": "2-cd"})
    later = fenced.snapshots / ".tmp-2-cd-000000000020"
    later.mkdir()
    with pytest.raises(StaleGenerationError, match="generation 1-ab may not commit"):
        save(zombie, 20)
    with pytest.raises(StaleGenerationError):
        zombie.restore()
    fenced.fence.unlink()
    with pytest.raises(StaleGenerationError):
        save(zombie, 20)
    assert steps(fenced.snapshots) == [10]
    assert later.is_dir()


@pytest.mark.parametrize("before", ["0-zz", None])
def test_a_fence_that_another_machine_has_written_may_be_seen_late(fenced, monkeypatch, before):
    monkeypatch.setattr(writer.SnapshotWriter, "_cache_timeout", 60.0)
    snapshots = Snapshots()
    write_json(fenced.fence, {"generation": before})
    monkeypatch.setattr(writer.time, "sleep", lambda _: write_json(fenced.fence, {"generation": "1-ab"}))
    save(snapshots, 10)
    assert steps(fenced.snapshots) == [10]


def test_the_last_free_bytes_are_left_to_journals_and_the_database(fenced, tmp_path, monkeypatch):
    with tmpfs(tmp_path / "small", "16m"):
        write_json(tmp_path / "small" / "fence.json", {"generation": "1-ab"})
        monkeypatch.setenv("REKINDLE_RUN_DIR", str(tmp_path / "small"))
        here, elsewhere = Snapshots(tmp_path / "small" / "snapshots"), Snapshots()
        (tmp_path / "small" / "ballast").write_bytes(bytes((16 << 20) - (200 << 10)))
        assert save(here, 10)[0].problem.startswith("the disk is full or read-only: [Errno 28] 0 MB are free")
        assert save(elsewhere, 10)[0].saved
        (tmp_path / "small" / "ballast").unlink()
        assert save(here, 20)[0].saved
        assert steps(tmp_path / "small" / "snapshots") == [20]


def test_a_directory_with_snapshots_of_another_job_is_refused_and_left_as_it_is(fenced, monkeypatch):
    first = Snapshots()
    save(first, 10)
    unfinished = fenced.snapshots / ".tmp-9-zz-000000000020"
    unfinished.mkdir()
    monkeypatch.setenv("REKINDLE_JOB_ID", "job-2")
    with pytest.raises(SnapshotError, match="snapshots holds snapshots of job job-1, and this is job job-2: each job"):
        Snapshots().restore()
    assert unfinished.is_dir()
    assert steps(fenced.snapshots) == [10]


def test_of_two_jobs_that_begin_in_one_directory_the_second_to_save_stops(fenced, monkeypatch):
    first = Snapshots()
    monkeypatch.setenv("REKINDLE_JOB_ID", "job-2")
    second = Snapshots(keep_last=1)
    assert (first.restore(), second.restore()) == (None, None)
    save(first, 10)
    with pytest.raises(SnapshotError, match="holds snapshots of job job-1, and this is job job-2"):
        save(second, 11)
    assert [result.saved for result in save(first, 20)] == [True]
    assert steps(fenced.snapshots) == [10, 20]


def test_a_file_in_place_of_the_directory_is_refused_before_training(root):
    root.write_text("")
    with pytest.raises(NotADirectoryError, match="snapshots is a file, and must be the directory of snapshots"):
        Snapshots(root)


def test_a_clock_set_back_changes_neither_which_snapshot_is_latest_nor_which_are_kept(root, monkeypatch):
    snapshots, now = Snapshots(root, keep_last=2), time.time()
    for step, hours in ((10, 0), (20, -48), (30, -1)):
        monkeypatch.setattr(time, "time", lambda hours=hours: now + 3600 * hours)
        assert save(snapshots, step)[0].saved
    times = [json.loads((root / f"{step:012d}" / "manifest.json").read_text())["created_at"] for step in (20, 30)]
    assert times == [now - 48 * 3600, now - 3600]
    assert steps(root) == [20, 30]
    assert Snapshots(root).restore().step == 30


@contextmanager
def limited_files(size):
    """No file of this process grows beyond ``size`` bytes: like a full disk, and needs no right to mount one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))  # Python ignores SIGXFSZ
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "small", [lambda root: tmpfs(root, "1m"), lambda _: limited_files(1_000_000)], ids=["disk", "file size"]
)
def test_a_full_disk_costs_one_snapshot_and_not_the_training(root, caplog, small):
    with small(root):
        snapshots = Snapshots(root, keep_last=9)
        first, second, third = (
            snapshots.save(step, 0, {"model": {"weight": torch.zeros(size)}}, {})
            for step, size in ((1, 1000), (2, 1_000_000), (3, 1000))
        )
        assert (first.problem, third.problem) == (None, None)
        assert second.problem.startswith("the disk is full or read-only: ")
        assert "snapshot 2 not saved, training continues" in caplog.text
        assert sorted(entry.name for entry in root.iterdir()) == ["000000000001", "000000000003"]
        assert Snapshots(root).restore().step == 3


def test_a_disk_that_is_read_only_costs_snapshots_until_it_is_writable_again(root, snapshots):
    with tmpfs(root, "8m"):
        save(snapshots, 10, 20)
        flip(root / "000000000020" / "model.pt", 500)
        remount(root, writable=False)
        for _ in range(2):  # nothing can be quarantined, and training continues all the same
            restored = Snapshots(root).restore()
            assert (restored.step, [each.step for each in restored.skipped]) == (10, [20])
        [result] = save(snapshots, 30)
        assert result.problem.startswith("the disk is full or read-only: [Errno 30] Read-only file system")
        remount(root, writable=True)
        assert [result.saved for result in save(snapshots, 30)] == [True]
        assert Snapshots(root).restore().step == 30


def test_a_disk_without_room_for_another_file_costs_one_snapshot(root, snapshots):
    with tmpfs(root, "8m,nr_inodes=8"):  # the root's, four of a snapshot, and one too few for the next
        [first, second] = save(snapshots, 10, 20)
        assert (first.saved, second.saved) == (True, False)
        assert second.problem.startswith("the disk is full or read-only: [Errno 28] No space left on device")
        assert [entry.name for entry in root.iterdir()] == ["000000000010"]
        assert Snapshots(root).restore().step == 10


def test_a_state_that_changes_while_it_is_written_is_saved_as_it_was(snapshots, root):
    weight, curve = torch.ones(300_000), [1.0]
    state = {"model": {"weight": weight, "tied": weight}, "curve": curve, "nothing": torch.empty(0)}
    for step in (1, 2):
        weight.fill_(step)
        snapshots.async_save(step, 0, state, {})
        weight.zero_()
        curve.append(step)
        assert snapshots.wait().saved
    restored = Snapshots(root).restore().shared_state
    assert torch.equal(restored["model"]["weight"], torch.full((300_000,), 2.0))
    assert restored["curve"] == [1.0, 1]
    size = (root / "000000000002" / "model.pt").stat().st_size
    assert size < 2 * weight.nbytes  # tied weights are saved once


def test_one_snapshot_is_written_at_a_time(snapshots):
    snapshots.async_save(1, 0, shared(1), own(1))
    with pytest.raises(RuntimeError, match="snapshot 2 started before the pending one was waited for"):
        snapshots.async_save(2, 0, shared(2), own(2))
    assert snapshots.wait().step == 1
    assert snapshots.wait() is None


@pytest.fixture
def memory(tmp_path):
    return tmp_path / "memory"


def copy(snapshots, step):
    snapshots.async_save(step, step // 10, shared(step), own(step), to_shm=True)
    return snapshots.wait()


def test_a_later_snapshot_in_shared_memory_takes_precedence_over_the_disk_and_an_earlier_one_does_not(root, memory):
    snapshots = Snapshots(root, shm=memory)
    save(snapshots, 10)
    assert [copy(snapshots, step).saved for step in (11, 12)] == [True, True]
    assert steps(memory) == [12]
    assert memory.stat().st_mode & 0o777 == 0o700
    restored = Snapshots(root, shm=memory).restore()
    assert (restored.step, restored.from_disk, restored.skipped) == (12, False, [])
    assert torch.equal(restored.shared_state["model"]["weight"], shared(12)["model"]["weight"])
    save(snapshots, 20)
    restored = Snapshots(root, shm=memory).restore()
    assert (restored.step, restored.from_disk) == (20, True)
    snapshots.discard_shm()
    assert not memory.exists()


@pytest.mark.parametrize("name", ["model.pt", "rank-0.pt", "manifest.json"])
def test_a_damaged_snapshot_in_shared_memory_is_never_used(root, memory, name):
    snapshots = Snapshots(root, shm=memory)
    save(snapshots, 10)
    copy(snapshots, 11)
    flip(memory / "000000000011" / name, 100)
    assert Snapshots(root, shm=memory).restore().step == 10


def test_memory_that_others_may_write_to_is_neither_read_nor_written(root, memory, caplog):
    snapshots = Snapshots(root, shm=memory)
    save(snapshots, 10)
    copy(snapshots, 11)
    memory.chmod(0o777)
    assert Snapshots(root, shm=memory).restore().step == 10
    assert copy(snapshots, 12).problem.endswith("is not a directory of this user alone")
    assert not snapshots.has_shm
    assert "no snapshot in shared memory, restarts resume from the disk: " in caplog.text


def test_a_planted_link_is_not_followed(root, memory, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    memory.symlink_to(tmp_path / "elsewhere")
    assert not copy(Snapshots(root, shm=memory), 11).saved
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_memory_without_room_is_left_to_others_and_saving_continues(root, memory, monkeypatch, caplog):
    monkeypatch.setattr(shared_memory, "_available_memory", lambda: 7_000)
    snapshots = Snapshots(root, shm=memory)
    assert not copy(snapshots, 1).saved
    assert not snapshots.has_shm
    assert "are more than half of the" in caplog.text
    assert list(memory.iterdir()) == []
    assert save(snapshots, 2)[0].saved


def test_a_copy_of_another_job_is_not_used(fenced, monkeypatch, memory):
    snapshots = Snapshots(shm=memory)
    copy(snapshots, 11)
    assert Snapshots(shm=memory).restore().step == 11
    monkeypatch.setenv("REKINDLE_JOB_ID", "job-2")
    assert Snapshots(shm=memory).restore() is None


def test_a_zombie_of_an_older_generation_leaves_no_copy(fenced, memory):
    zombie = Snapshots(shm=memory)
    write_json(fenced.fence, {"generation": "2-cd"})
    with pytest.raises(StaleGenerationError):
        copy(zombie, 11)
    assert list(memory.iterdir()) == []


def test_a_zombie_on_one_of_several_machines_adds_no_copy(fenced, memory, monkeypatch):
    monkeypatch.setenv("REKINDLE_NODE", "0")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        zombie = Snapshots(shm=memory)
        assert copy(zombie, 11).saved
        write_json(fenced.fence, {"generation": "2-cd"})
        with pytest.raises(StaleGenerationError):
            copy(zombie, 12)
    finally:
        dist.destroy_process_group()
    assert [path.name for path in memory.glob("*/*")] == ["000000000011"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE])
def test_a_disk_that_does_not_give_a_snapshot_now_ends_the_attempt_and_costs_no_snapshot(
    snapshots, root, monkeypatch, number
):
    save(snapshots, 10, 20)

    def fail(*args, **options):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(directory, "_verify_file", fail)
        patch.setattr(loader, "STORAGE_TIMEOUT", 0.0)
        with pytest.raises(SnapshotError, match=rf"000000000020 cannot be read now: \[Errno {number}\] "):
            Snapshots(root).restore()
    assert steps(root) == [10, 20]
    assert Snapshots(root).restore().step == 20


def test_a_disk_that_comes_back_is_waited_for(snapshots, root, monkeypatch, caplog):
    save(snapshots, 10, 20)
    verify_file, tries = directory._verify_file, []

    def fail_once(*args, **options):
        tries.append(args)
        if len(tries) == 1:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return verify_file(*args, **options)

    monkeypatch.setattr(directory, "_verify_file", fail_once)
    monkeypatch.setattr(loader, "RETRY_INTERVAL", 0.01)
    assert Snapshots(root).restore().step == 20
    assert "waiting for the snapshots" in caplog.text


def test_a_state_that_can_no_longer_be_loaded_costs_its_snapshots_and_is_named(snapshots, root, caplog):
    save(snapshots, 10)
    result = snapshots.save(20, 2, {"optimizer": {"groups": [{"lr": np.float32(0.1)}]}}, own(20))
    assert not result.saved
    assert "rank 0 cannot be saved and loaded safely: optimizer/groups/0/lr is a numpy.float32" in caplog.text
    assert [result.saved for result in save(snapshots, 30)] == [True]
    assert steps(root) == [10, 30]


@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimizer: MultiStepLR(optimizer, [1, 3, 3, 5]),
        lambda optimizer: LambdaLR(optimizer, lambda step: 1.0 if step < 2 else np.exp(-0.3 * step)),
    ],
)
def test_a_schedule_continues_through_many_snapshots_as_if_never_saved(root, schedule):
    def begin():
        optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        return {"optimizer": optimizer, "scheduler": schedule(optimizer)}

    calm, saved = begin(), begin()
    for step in range(1, 7):
        for parts in (calm, saved):
            parts["optimizer"].step()
            parts["scheduler"].step()
        state = {name: part.state_dict() for name, part in saved.items()}
        assert Snapshots(root).save(step, 0, state, {}).saved
        saved, restored = begin(), Snapshots(root).restore()
        for name, part in saved.items():
            part.load_state_dict(restored.shared_state[name])
        assert saved["scheduler"].state_dict() == calm["scheduler"].state_dict()
        assert saved["optimizer"].param_groups[0]["lr"] == calm["optimizer"].param_groups[0]["lr"]


def test_a_snapshot_that_this_script_cannot_load_is_skipped_for_the_one_before(snapshots, root, caplog):
    with torch.serialization.safe_globals([Custom]):
        snapshots.save(10, 1, {"model": Custom()}, {})
    with pytest.raises(SnapshotError, match=r"no snapshot in .* can be loaded; .* of step 10, .* it holds a .*Custom"):
        Snapshots(root).restore()
    with torch.serialization.safe_globals([Custom]):
        assert Snapshots(root).restore().step == 10
        save(snapshots, 20)
        snapshots.save(30, 1, {"model": Custom()}, {})
    restored = Snapshots(root).restore()
    assert (restored.step, [each.step for each in restored.skipped]) == (20, [30])
    assert "snapshot 30 skipped: it cannot be loaded: it holds a " in caplog.text
    assert (root / "quarantine-000000000030").is_dir()


@pytest.mark.parametrize("call", ["write_state", "write_manifest", "verify"])
def test_an_unexpected_error_costs_one_snapshot(snapshots, root, monkeypatch, call):
    def fail(*args, **kwargs):
        raise ZeroDivisionError("odd")

    with monkeypatch.context() as patch:
        patch.setattr(writer, call, fail)
        [result] = save(snapshots, 10)
    assert "an unexpected error: ZeroDivisionError: odd" in result.problem
    assert list(root.iterdir()) == []
    assert save(snapshots, 20)[0].saved


def test_the_ranks_copies_must_fit_into_memory_together(memory):
    room = shared_memory.request_space(memory, 1 << 20).free
    one = shared_memory.SpaceRequest(room // 3, room)
    assert shared_memory.check_free_space(memory, [one]) is None
    assert "are more than half of the" in shared_memory.check_free_space(memory, [one, one])
    refused = shared_memory.SpaceRequest(1, problem="Permission denied")
    assert shared_memory.check_free_space(memory, [one, refused]) == "Permission denied"
