import json

import pytest

from job_examples import a_job
from rekindle.contract.outcome import Outcome
from rekindle.contract.run_dir.journal import RecordType, read_journal
from rekindle.contract.states import JobState
from rekindle_service.store.projection import project

FAILURE = Outcome.from_json({"class": "signal", "message": "rank 1 was killed"}).to_json()
SUCCESS = Outcome.from_json({"class": "success", "message": "done"}).to_json()


@pytest.fixture
def records(tmp_path):
    """Records as they are read from a journal; the time of each is its line number."""

    def records(*lines):
        path = tmp_path / "journal.jsonl"
        values = [{"type": kind, "at": at, **fields} for at, (kind, fields) in enumerate(lines, start=1)]
        path.write_text("".join(json.dumps(value) + "\n" for value in values))
        return list(read_journal(path))

    return records


def attempt_started(number, run=1, world_size=2):
    devices = [f"cpu:{index}" for index in range(world_size)]
    return "attempt_started", {"attempt": number, "run": run, "world_size": world_size, "devices": devices}


def ranks_running(number):
    return "ranks_running", {"attempt": number, "ranks": []}


def attempt_ended(number, outcome=FAILURE, **steps):
    return "attempt_ended", {"attempt": number, "outcome": outcome, **steps}


def retry(number, at=50.0):
    return "retry_decided", {"attempt": number, "reason": "first failure", "delay": 0.0, "next_try_at": at}


def job_ended(state, run=1, outcome=None):
    return "job_ended", {"run": run, "state": state, "reason": "because", "outcome": outcome}


@pytest.fixture
def job():
    return a_job(state=JobState.STARTING, run=1, devices=["cpu:0", "cpu:1"])


def ways(effect):
    return [change.to for change in effect.states]


def test_no_records_have_no_effect(job):
    assert project(job, [], []) is None


def test_a_run_without_trouble_goes_from_starting_over_running_to_its_end(job, records):
    lines = records(
        attempt_started(1), ranks_running(1), attempt_ended(1, SUCCESS), job_ended("succeeded", outcome=SUCCESS)
    )
    effect = project(job, [], lines)
    assert ways(effect) == ["running", "succeeded"]
    assert effect.columns["ended_at"] == 4.0
    assert effect.columns["progress"] == 1.0
    assert effect.columns["outcome"] == SUCCESS
    assert effect.columns["devices"] == []
    assert effect.columns["restarts"] == 0
    assert effect.offset == lines[-1].end


def test_a_failed_attempt_leads_to_recovering_only_when_another_one_comes(job, records):
    effect = project(job, [], records(attempt_started(1), ranks_running(1), attempt_ended(1), retry(1)))
    assert ways(effect) == ["running", "recovering"]
    assert effect.columns["next_try_at"] == 50.0
    assert effect.columns["outcome"] == FAILURE
    effect = project(job, [], records(attempt_started(1), ranks_running(1), attempt_ended(1)))
    assert ways(effect) == ["running"]


def test_the_reason_of_a_recovery_is_gone_once_the_ranks_run_again(job, records):
    effect = project(
        job,
        [],
        records(attempt_started(1), ranks_running(1), attempt_ended(1), retry(1), attempt_started(2), ranks_running(2)),
    )
    assert ways(effect) == ["running", "recovering", "running"]
    assert effect.columns["outcome"] is None
    assert effect.columns["next_try_at"] is None
    assert effect.columns["attempt"] == 2
    assert effect.columns["restarts"] == 1


def test_attempts_hold_what_the_journal_tells_of_them(job, records):
    effect = project(
        job,
        [],
        records(
            attempt_started(1, world_size=3),
            ranks_running(1),
            ("resumed", {"attempt": 1, "step": 40}),
            attempt_ended(1, resumed_from_step=40, last_step=57, snapshot_step=50),
            retry(1),
        ),
    )
    attempt = effect.attempts[1]
    assert (attempt.started_at, attempt.ranks_running_at, attempt.ended_at) == (1.0, 2.0, 4.0)
    assert (attempt.resumed_from_step, attempt.last_step, attempt.snapshot_step) == (40, 57, 50)
    assert (attempt.world_size, attempt.reason, attempt.next_try_at) == (3, "first failure", 50.0)
    assert effect.columns["snapshot_step"] == 50


def test_reading_record_by_record_gives_the_same_as_reading_all_at_once(job, records):
    lines = records(
        attempt_started(1), ranks_running(1), attempt_ended(1), retry(1), attempt_started(2), ranks_running(2),
        attempt_ended(2, SUCCESS), job_ended("succeeded"),
    )  # fmt: skip
    whole = project(job, [], lines)
    stepwise, attempts, seen = job.model_copy(), {}, []
    for line in lines:
        effect = project(stepwise, list(attempts.values()), [line])
        attempts |= effect.attempts
        seen += ways(effect)
        columns = {**effect.columns, "journal_offset": effect.offset}
        if effect.states:
            columns["state"] = effect.states[-1].to
        stepwise = stepwise.model_copy(update=columns)
    assert seen == ways(whole)
    assert attempts == whole.attempts
    assert stepwise == job.model_copy(
        update={**whole.columns, "state": whole.states[-1].to, "journal_offset": whole.offset}
    )


def test_the_end_of_an_earlier_run_says_nothing_about_this_one(job, records):
    job.run = 2
    effect = project(job, [], records(job_ended("failed", run=1), attempt_started(1, run=2), ranks_running(1)))
    assert ways(effect) == ["running"]
    assert "ended_at" not in effect.columns


def test_a_job_ends_once_however_often_the_journal_says_so(job, records):
    effect = project(job, [], records(job_ended("failed"), job_ended("succeeded"), retry(1), ranks_running(1)))
    assert ways(effect) == ["failed"]


def test_a_job_that_is_over_is_not_brought_back_by_its_journal(records):
    job = a_job(state=JobState.CANCELLED, run=1)
    assert ways(project(job, [], records(attempt_started(1), ranks_running(1), job_ended("failed")))) == []


def test_a_drained_job_goes_back_to_the_queue(job, records):
    effect = project(job, [], records(job_ended("queued")))
    assert ways(effect) == ["queued"]
    assert effect.requeued
    assert "ended_at" not in effect.columns
    assert effect.columns["outcome"]["class"] == "preempted"


def test_a_job_cancelled_between_attempts_has_an_outcome(job, records):
    assert project(job, [], records(job_ended("cancelled"))).columns["outcome"]["class"] == "cancelled"


def test_attempts_of_a_later_run_are_no_restarts(job, records):
    lines = records(attempt_started(1), attempt_ended(1), job_ended("failed"))
    effect = project(job, [], lines)
    again = a_job(state=JobState.STARTING, run=2)
    assert project(again, list(effect.attempts.values()), records(attempt_started(2, run=2))).columns["restarts"] == 0


@pytest.mark.parametrize(
    "bad",
    [
        ("attempt_started", {}),
        ("attempt_started", {"attempt": "x", "run": 1, "world_size": 1, "devices": []}),
        ("ranks_running", {"attempt": None}),
        ("retry_decided", {"attempt": 1, "reason": "r"}),
        ("job_ended", {"run": 1, "state": "paused", "reason": "r"}),
        ("job_ended", {"run": 1, "state": "running", "reason": "r"}),
    ],
)
def test_a_malformed_record_is_skipped_and_noted(job, bad, records):
    effect = project(job, [], records(bad, attempt_started(1), ranks_running(1)))
    assert ways(effect) == ["running"]
    assert "journal.jsonl" in effect.columns["notice"]


def fault_injected(number, **fields):
    return "fault_injected", {"attempt": number, **fields}


def test_injected_faults_are_kept_with_their_attempt_and_told_as_events(job, records):
    lines = [
        attempt_started(1),
        ranks_running(1),
        fault_injected(1, fault="corrupt-snapshot", rank=None, snapshot=40),
        fault_injected(1, fault="kill", rank=1, snapshot=None),
    ]
    effect = project(job, [], records(*lines))
    assert effect.attempts[1].faults == [
        {"at": 3.0, "fault": "corrupt-snapshot", "rank": None, "snapshot": 40},
        {"at": 4.0, "fault": "kill", "rank": 1, "snapshot": None},
    ]
    sentences = [event.sentence for event in effect.events if event.kind == "chaos"]
    assert sentences == ["attempt 1: corrupt-snapshot of step 40", "attempt 1: kill rank 1"]
    assert ways(effect) == ["running"]


def test_a_skipped_snapshot_is_part_of_the_story(job, records):
    skip = {"attempt": 1, "step": 40, "reason": "model.pt: another checksum"}
    effect = project(job, [], records(attempt_started(1), ranks_running(1), ("snapshot_skipped", skip)))
    assert [(event.kind, event.sentence) for event in effect.events] == [
        ("snapshot_skipped", "attempt 1: the snapshot of step 40 was skipped: model.pt: another checksum")
    ]


def test_a_straggler_found_and_cleared_is_part_of_the_story(job, records):
    found, cleared = {"attempt": 1, "rank": 1, "share": 0.75}, {"attempt": 1, "rank": 1, "share": None}
    lines = [attempt_started(1), ranks_running(1), (RecordType.STRAGGLER, found), (RecordType.STRAGGLER, cleared)]
    effect = project(job, [], records(*lines))
    assert [(event.kind, event.sentence) for event in effect.events] == [
        ("straggler", "attempt 1: the others wait 75% of the time for rank 1"),
        ("straggler", "attempt 1: the others no longer wait for rank 1"),
    ]
    assert ways(effect) == ["running"]


@pytest.mark.parametrize(
    "fields",
    [{"fault": "explode", "rank": 1}, {"rank": 1}, {"fault": ["kill"], "rank": 1}, {"fault": "kill", "rank": "1"}],
)
def test_a_malformed_fault_is_skipped(job, fields, records):
    effect = project(job, [], records(attempt_started(1), fault_injected(1, **fields)))
    assert effect.attempts[1].faults == []
    assert [event.kind for event in effect.events] == ["records_skipped"]
    assert "skipped" in effect.columns["notice"]


def keeper_started(devices, run=1):
    return "keeper_started", {
        "run": run,
        "keeper": {"pid": 1, "start_time": 2, "boot_id": "b"},
        **({} if devices is None else {"devices": devices}),
    }


def devices_held(*devices, run=1):
    return "devices_held", {"run": run, "devices": list(devices)}


def begun_on(number, *devices, run=1):
    return "attempt_started", {"attempt": number, "run": run, "world_size": len(devices), "devices": list(devices)}


RESIZED = Outcome.from_json({"class": "preempted", "message": "…", "evidence": {"ending": "resize"}}).to_json()
SETTLED = {"wanted_devices": None, "displaced": None}


def resizing(devices, wanted, run=1):
    displaced = {"kind": "resize", "by": None, "reason": "…", "at": 1.0}
    return a_job(state=JobState.RUNNING, run=run, devices=devices, wanted_devices=wanted, displaced=displaced)


def settled(effect):
    return None if effect is None or "wanted_devices" not in effect.columns else effect.columns["devices"]


def test_a_keeper_of_an_earlier_version_does_not_change_devices(job, records):
    assert project(job, [], records(keeper_started(None))).columns == {"can_resize": False}
    assert project(job, [], records(keeper_started(["cpu:0", "cpu:1"]))).columns == {"can_resize": True}


def test_a_slot_is_given_up_when_the_next_attempt_begins_without_it(records):
    job = resizing(["a", "b", "c"], ["a"])
    assert settled(project(job, [], records(devices_held("a", "b", "c")))) is None
    assert settled(project(job, [], records(begun_on(2, "a", "b", "c")))) is None
    effect = project(job, [], records(begun_on(2, "a")))
    assert settled(effect) == ["a"]
    assert {name: effect.columns[name] for name in SETTLED} == SETTLED
    assert effect.columns["devices_since"] == 1.0


def test_a_slot_is_given_up_when_the_keeper_says_that_it_does_not_use_it(records):
    job = resizing(["a", "b", "c"], ["a"])
    assert settled(project(job, [], records(devices_held("a")))) == ["a"]
    assert settled(project(job, [], records(keeper_started(["a"])))) == ["a"]
    assert settled(project(job, [], records(devices_held("a", run=0)))) is None
    assert settled(project(resizing(["a", "b"], ["a"], run=2), [], records(begun_on(1, "a", run=1)))) is None


def test_more_slots_are_settled_only_once_an_attempt_runs_on_them(records):
    job = resizing(["a", "b"], ["a", "b"])
    assert settled(project(job, [], records(devices_held("a", "b")))) is None
    assert settled(project(job, [], records(begun_on(2, "a", "b")))) == ["a", "b"]


def test_a_resized_job_stays_running_and_its_next_attempt_is_no_restart(records):
    job = resizing(["a", "b"], ["a"])
    first = project(job, [], records(begun_on(1, "a", "b"), ranks_running(1), attempt_ended(1, RESIZED), retry(1)))
    assert ways(first) == []
    job.journal_offset = first.offset
    after = project(job, list(first.attempts.values()), records(*[("x", {})] * 9, begun_on(2, "a"), ranks_running(2)))
    assert ways(after) == []
    assert after.columns["restarts"] == 0
