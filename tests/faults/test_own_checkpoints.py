"""Checkpoints that a script writes by itself are learned wherever it writes them, count as progress, and are mended."""

from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.script_files import Observations


def test_checkpoints_are_found_counted_named_when_loaded_and_moved_when_torn(begin, tmp_path):
    out = tmp_path / "results"
    run = begin("plain_saver.py", str(out), "6", "4", ranks=1)
    assert run.finish() == "succeeded"
    assert [record.progress for record in run.records(RecordType.ATTEMPT_ENDED)] == ["known", "known"], run.all_logs()
    [torn] = run.records(RecordType.CHECKPOINT_TORN)
    assert (torn.attempt, torn.written_by) == (2, 1)
    assert torn.path == f"{out}/file/epoch_4.pth.tar"
    assert torn.moved_to == f"{out}/file/epoch_4.pth.tar.torn-1"
    assert (out / "file" / "epoch_4.pth.tar.torn-1").stat().st_size > 4000
    loaded = run.records(RecordType.CHECKPOINT_LOADED)[-1]
    assert (loaded.attempt, loaded.path) == (2, f"{out}/trainer/checkpoint-4")
    assert "loaded file/epoch_3.pth.tar" in run.log(0)
    observed = read_record(run.run_dir.observed, Observations)
    assert observed.estimated_step == 6
    found = {each.path.removeprefix(f"{out}/"): each for each in observed.checkpoints}
    names = {"renamed/last.weights", "safetensors/model.safetensors"}
    names |= {f"sharded/step-{step}" for step in range(1, 7)} | {f"trainer/checkpoint-{step}" for step in range(1, 7)}
    assert found.keys() == names | {f"file/epoch_{step}.pth.tar" for step in range(1, 7)}
    assert all(each.complete and each.bytes > 4000 for each in found.values())
    assert {name for name, each in found.items() if each.loaded == 2} == {
        "renamed/last.weights", "safetensors/model.safetensors", "sharded/step-4", "trainer/checkpoint-4",
        "file/epoch_3.pth.tar",
    }  # fmt: skip


def test_a_checkpoint_that_is_overwritten_in_place_is_back_after_a_kill_in_the_middle(begin):
    run = begin("overwrites.py", ranks=1)
    assert run.finish() == "succeeded", run.all_logs()
    assert run.steps(0) == [[1, 2, 3, 4], [5, 6, 7], [8, 9, 10]]
    torn = run.records(RecordType.CHECKPOINT_TORN)
    assert [(each.attempt, each.path, each.moved_to, each.restored) for each in torn] == [
        (2, "last.pt", "last.pt.torn-1", True),
        (3, "last.pt", "last.pt.torn-2", True),
    ]
    names = {path.name for path in run.run_dir.code.iterdir()}
    assert names == {"train.py", "last.pt", "last.pt.torn-1", "last.pt.torn-2", "killed-5", "killed-8"}
    [last] = [each for each in read_record(run.run_dir.observed, Observations).checkpoints if "torn" not in each.path]
    assert (last.complete, last.attempt) == (True, 3)
