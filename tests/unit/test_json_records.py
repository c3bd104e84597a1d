import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle.contract.job import JobSpec, RunIntent
from rekindle.contract.job_options import SnapshotPolicy, TargetKind
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.json_records import read_record, structure
from rekindle.contract.run_dir.rank_records import RankDone, RankError, RankState, RankStatus
from rekindle.contract.states import JobIntent

STATUS = RankStatus(
    rank=0, local_rank=0, world_size=2, host="h", pid=5, start_time=6, device="cpu", state=RankState.RUNNING,
)  # fmt: skip
ERROR = RankError(0, "ValueError", "no", "train.py", 3, "Traceback …", None, 1.0, 2.0)
DONE = RankDone(0, drained=True, step=None, at=1.0)


@pytest.mark.parametrize("record", [STATUS, ERROR, DONE])
def test_a_record_comes_back_as_it_was_written(record):
    assert structure(type(record), json.loads(json.dumps(record.to_json()))) == record


def test_what_a_newer_version_has_added_is_ignored():
    assert RankStatus.from_json({**STATUS.to_json(), "mood": "good"}) == STATUS
    intent = RunIntent(JobIntent.RUN, 1, ["cpu:0"])
    assert RunIntent.from_json({**intent.to_json(), "colour": "blue"}) == intent
    spec = JobSpec("n", TargetKind.SCRIPT, "t.py", "/p", snapshot=SnapshotPolicy(every_steps=5))
    value = spec.to_json()
    assert JobSpec.from_json({**value, "x": 1, "snapshot": {**value["snapshot"], "y": 2}}) == spec
    outcome = Outcome(OutcomeClass.OOM, "full", rank=1)
    assert Outcome.from_json({**outcome.to_json(), "z": 3}) == outcome


@pytest.mark.parametrize(
    "change",
    [
        {"rank": "0"},
        {"rank": None},
        {"rank": True},
        {"rank": 10**30},
        {"step": "5"},
        {"step": 1.5},
        {"state": "asleep"},
        {"state": 3},
        {"notice": 5},
        {"steps_per_second": math.nan},
        {"steps_per_second": math.inf},
        {"steps_per_second": [1]},
    ],
)
def test_a_field_of_another_kind_makes_no_record(change):
    with pytest.raises(ValueError, match=r"is needed|not a valid"):
        RankStatus.from_json({**STATUS.to_json(), **change})


def test_a_missing_field_makes_no_record():
    value = STATUS.to_json()
    del value["pid"]
    with pytest.raises(ValueError, match="pid"):
        RankStatus.from_json(value)


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(sorted(STATUS.to_json())), inner),
    max_leaves=4,
)


@settings(max_examples=60)
@given(value=_anything | st.builds(lambda change: {**STATUS.to_json(), **change}, st.dictionaries(
    st.sampled_from(sorted(STATUS.to_json())), _anything, max_size=2)))  # fmt: skip
def test_no_json_breaks_the_reader_and_what_it_accepts_is_sound(value):
    try:
        status = RankStatus.from_json(value)
    except ValueError:
        return
    assert isinstance(status.state, RankState)
    assert isinstance(status.pid, int)
    assert status.step is None or isinstance(status.step, int)
    json.dumps(status.to_json(), allow_nan=False)


def test_a_file_with_something_else_in_it_is_no_record(tmp_path):
    path = tmp_path / "done.json"
    assert read_record(path, RankDone) is None
    for nonsense in (b"", b"[]", b"{}", b'{"rank": 0, "drained": "yes", "step": null, "at": 1}'):
        path.write_bytes(nonsense)
        assert read_record(path, RankDone) is None
    path.write_text(json.dumps(DONE.to_json()))
    assert read_record(path, RankDone) == DONE
