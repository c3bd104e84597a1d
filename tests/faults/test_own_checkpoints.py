"""Checkpoints that a script writes by itself are learned wherever it writes them, count as progress, and are mended."""

import pytest

from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.script_files import Observations


def observed(run) -> Observations:
    found = read_record(run.run_dir.observed, Observations)
    assert found is not None
    return found


@pytest.mark.parametrize("how", ["file", "rename", "safetensors", "sharded", "trainer"])
def test_a_checkpoint_anywhere_is_found_counted_and_named_when_it_is_loaded(begin, tmp_path, how):
    out = tmp_path / "results"
    run = begin("plain_saver.py", str(out), how, "40", ranks=1)
    run.reach_step(5)
    run.signal_rank(0)
    assert run.finish() == "succeeded"
    ended = run.records(RecordType.ATTEMPT_ENDED)
    assert [record.progressed for record in ended] == [True, True], run.story()
    [loaded] = run.records(RecordType.CHECKPOINT_LOADED)
    assert loaded.attempt == 2
    assert loaded.path.startswith(f"{out}/")
    latest = observed(run).checkpoints[0]
    assert latest.complete
    assert latest.attempt == 2
    assert latest.bytes > 4000
