"""A world that stands still: the guilty rank and its line are named, and the job goes on. Slow is not hung."""

import pytest

from rekindle.contract.run_dir.journal import RecordType

HANGS = ["sleep", "stop", "spin", "lock_in_c", "skip_collective", "dead_loader"]


@pytest.mark.timeout(300)
def test_six_hangs_are_found_the_rank_and_line_named_and_the_job_finished(begin):
    run = begin("hangs.py", *HANGS, hang_timeout=2.0)
    assert run.finish() == "succeeded"
    assert run.classes() == ["hang"] * len(HANGS) + ["success"]
    source = (run.run_dir.code / "train.py").read_text().splitlines()
    for name, outcome in zip(HANGS, run.outcomes(), strict=False):
        assert outcome["rank"] == 1, (name, outcome)
        if name != "stop":  # a stopped process cannot say where it is
            assert outcome["file"] == "train.py", (name, outcome)
            assert enclosing_function(source, outcome["line"]) == name, (name, outcome)
        assert outcome["evidence"]["stacks"]["0"], name


def enclosing_function(source: list[str], line: int) -> str:
    """Name of the function that holds ``line``."""
    heads = [text for text in source[:line] if text.startswith("def ")]
    return heads[-1].removeprefix("def ").partition("(")[0]


def test_a_job_that_writes_while_it_takes_long_is_left_alone(begin):
    run = begin("hangs.py", "slow", hang_timeout=3.0)
    assert run.finish() == "succeeded"
    assert run.classes() == ["success"]


def test_a_slow_first_step_a_long_evaluation_and_a_long_save_are_no_hangs(begin):
    run = begin("phases.py", hang_timeout=1.5)
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
