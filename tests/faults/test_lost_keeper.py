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


@pytest.mark.parametrize("kind", [RecordType.JOB_ENDED, RecordType.ATTEMPT_ENDED, RecordType.RANKS_RUNNING])
def test_a_finished_job_is_never_run_again(begin, kind):
    run = begin("stubborn.py", "end", ranks=2, warm=False)
    assert run.finish() == "succeeded"
    forget_from(run, kind)
    run.start()
    assert run.finish() == "succeeded"
    assert run.attempt == 1
    assert run.classes() == ["success"]


def test_a_job_that_has_ended_stays_as_it_is(begin):
    run = begin("stubborn.py", "end", ranks=1, warm=False)
    assert run.finish() == "succeeded"
    before = run.run_dir.journal.read_bytes()
    run.start()
    assert run.finish() == "succeeded"
    assert run.run_dir.journal.read_bytes() == before


@pytest.mark.parametrize("kind", [RecordType.JOB_ENDED, RecordType.ATTEMPT_ENDED])
def test_a_drained_job_is_not_taken_for_a_finished_one(begin, kind):
    run = begin("stubborn.py", "save", ranks=2, warm=False)
    run.reach_step(1)
    run.reach_step(1, rank=1)
    run.want(JobIntent.DRAIN)
    assert run.finish() == "queued"
    forget_from(run, kind)
    run.start()
    assert run.finish() == "queued"
    assert run.classes() == ["preempted"]
    assert run.attempt == 1


@pytest.mark.parametrize("kind", [RecordType.JOB_ENDED, RecordType.ATTEMPT_ENDED])
def test_a_cancelled_job_stays_cancelled(begin, kind):
    run = begin("stubborn.py", "wait", ranks=1, warm=False)
    run.reach_step(1)
    run.want(JobIntent.CANCEL)
    assert run.finish() == "cancelled"
    forget_from(run, kind)
    run.start()
    assert run.finish() == "cancelled"
    assert run.attempt == 1


def test_a_failed_job_is_not_given_another_chance(begin):
    run = begin("stubborn.py", "raise", ranks=1, warm=False, max_failures=1)
    assert run.finish() == "failed"
    forget_from(run, RecordType.JOB_ENDED)
    run.start()
    assert run.finish() == "failed"
    assert run.attempt == 1


def test_another_boot_id_means_that_the_machine_went_down(prepare):
    run = prepare("stubborn.py", "end", ranks=1, warm=False)
    keeper = {"pid": 1, "start_time": 1, "boot_id": "of-yesterday"}
    lines = [
        {"type": "keeper_started", "at": 1.0, "run": 1, "keeper": keeper},
        {"type": "attempt_started", "at": 2.0, "attempt": 1, "run": 1, "generation": "1-x", "world_size": 1,
         "devices": ["cpu:0"], "warm": False},
    ]  # fmt: skip
    run.run_dir.journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run.start()
    assert run.finish() == "succeeded"
    assert run.classes() == ["host_lost", "success"]
    assert run.attempt == 2
