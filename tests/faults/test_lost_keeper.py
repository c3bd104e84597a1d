"""A keeper may die between any two records of its journal; the next one comes to the same end of the job, once.

Killed there, it leaves the journal without what it would have written: that is what these tests make.
"""

import json

import pytest

from rekindle.contract.run_dir.journal import RecordType, read_journal
from rekindle.contract.states import JobIntent


def forget_from(run, kind):
    """Take the last ``kind`` record and all behind it out of the journal, and half of its line stay: a torn write."""
    data = run.run_dir.journal.read_bytes()
    records = list(read_journal(run.run_dir.journal))
    index = max(number for number, record in enumerate(records) if record.type is kind)
    start = records[index - 1].end
    run.run_dir.journal.write_bytes(data[: start + (records[index].end - start) // 2])


_JOB, _ATTEMPT, _RANKS = RecordType.JOB_ENDED, RecordType.ATTEMPT_ENDED, RecordType.RANKS_RUNNING
ENDS = {
    # state: (how the script acts, what is requested, class of the attempt once all from this record on was lost)
    "succeeded": ("end", None, {_JOB: "success", _ATTEMPT: "success", _RANKS: "success"}),
    "queued": ("save", JobIntent.DRAIN, {_JOB: "preempted", _ATTEMPT: "preempted"}),
    "cancelled": ("wait", JobIntent.CANCEL, {_JOB: "cancelled", _ATTEMPT: "keeper_lost"}),
    "failed": ("raise", None, {_JOB: "user_error"}),
}


@pytest.mark.parametrize("state", ENDS)
def test_a_job_that_has_ended_is_never_run_again_and_ends_the_same(begin, state):
    script, intent, lost = ENDS[state]
    run = begin("stubborn.py", script, warm=False, max_failures=1)
    if intent is not None:
        for rank in (0, 1):
            run.reach_step(1, rank=rank)
        run.want(intent)
    assert run.finish() == state
    complete = run.run_dir.journal.read_bytes()
    run.start()
    assert run.finish() == state
    assert run.run_dir.journal.read_bytes() == complete
    for kind, klass in lost.items():
        forget_from(run, kind)
        run.start()
        assert run.finish() == state, kind
        assert (run.attempt, run.classes()) == (1, [klass]), kind


def test_another_boot_id_means_that_the_machine_went_down(prepare):
    run = prepare("stubborn.py", "end", ranks=1, warm=False)
    keeper = {"pid": 1, "start_time": 1, "boot_id": "of-yesterday"}
    lines = [
        {"type": "keeper_started", "at": 1.0, "run": 1, "keeper": keeper},
        {"type": "attempt_started", "at": 2.0, "attempt": 1, "run": 1, "world_size": 1, "devices": ["cpu:0"]},
    ]  # fmt: skip
    run.run_dir.journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run.start()
    assert run.finish() == "succeeded"
    assert run.classes() == ["host_lost", "success"]
    assert run.attempt == 2
