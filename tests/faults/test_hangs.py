"""A world that hangs: the culprit and its line are named, and the job continues. Slow is not hung."""

import pytest

from faults.mismatch import enclosing_function
from rekindle.contract.run_dir.journal import RecordType

HANGS = ["sleep", "stop", "spin", "lock_in_c", "skip_collective", "dead_loader"]


@pytest.mark.timeout(300)
def test_six_hangs_are_found_the_rank_and_line_named_and_the_job_finished(begin):
    run = begin("corpus.py", *HANGS, hang_timeout=2.0)
    assert run.finish() == "succeeded"
    assert run.classes() == ["hang"] * len(HANGS) + ["success"]
    source = (run.run_dir.code / "train.py").read_text().splitlines()
    for name, outcome in zip(HANGS, run.outcomes(), strict=False):
        assert outcome["rank"] == 1, (name, outcome)
        if name != "stop":  # a stopped process cannot say where it is
            assert outcome["file"] == "train.py", (name, outcome)
            assert enclosing_function(source, outcome["line"]) == name, (name, outcome)
        assert outcome["evidence"]["stacks"]["0"], name


@pytest.mark.parametrize(
    ("script", "hang_timeout"),
    [
        (("corpus.py", "slow"), 3.0),  # it writes while it takes long
        (("phases.py",), 1.5),  # a slow first step, a long evaluation and a long save
    ],
)
def test_a_slow_job_is_no_hang(begin, script, hang_timeout):
    run = begin(*script, hang_timeout=hang_timeout)
    assert run.finish() == "succeeded"
    assert run.classes() == ["success"]


def test_a_rank_that_the_others_wait_for_is_marked_and_left_alone(begin):
    run = begin("straggler.py", hang_timeout=30.0)
    run.reach_record(RecordType.STRAGGLER)
    (run.run_dir.snapshots / "end").touch()
    assert run.finish() == "succeeded"
    assert run.classes() == ["success"]
    marks = run.records(RecordType.STRAGGLER)
    assert [mark.rank for mark in marks] == [1]
    assert 0.6 <= marks[0].share <= 1.0
