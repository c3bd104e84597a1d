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


def test_a_run_without_trouble_starts_runs_and_succeeds(job, records):
    lines = records(
        attempt_started(1), ranks_running(1), attempt_ended(1, SUCCESS), job_ended("succeeded", outcome=SUCCESS)
    )
    effect = project(job, [], lines)
    assert ways(effect) == ["running", "succeeded"]
    expected = {"ended_at": 4.0, "progress": 1.0, "outcome": SUCCESS, "devices": [], "restarts": 0}
    assert {name: effect.columns[name] for name in expected} == expected
    assert effect.offset == lines[-1].end


def test_a_failed_attempt_leads_to_recovering_when_another_one_comes_and_to_running_with_its_ranks(job, records):
    failed = [attempt_started(1), ranks_running(1), attempt_ended(1)]
    assert ways(project(job, [], records(*failed))) == ["running"]
    effect = project(job, [], records(*failed, retry(1)))
    assert ways(effect) == ["running", "recovering"]
    assert (effect.columns["next_try_at"], effect.columns["outcome"]) == (50.0, FAILURE)
    effect = project(job, [], records(*failed, retry(1), attempt_started(2), ranks_running(2)))
    assert ways(effect) == ["running", "recovering", "running"]
    expected = {"outcome": None, "next_try_at": None, "attempt": 2, "restarts": 1}
    assert {name: effect.columns[name] for name in expected} == expected


def test_attempts_hold_what_the_journal_reports_of_them(job, records):
    resumed = ("resumed", {"attempt": 1, "step": 40})
    ended = attempt_ended(1, resumed_from_step=40, last_step=57, snapshot_step=50)
    effect = project(job, [], records(attempt_started(1, world_size=3), ranks_running(1), resumed, ended, retry(1)))
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


def test_the_end_of_an_earlier_run_does_not_end_this_one(job, records):
    job.run = 2
    effect = project(job, [], records(job_ended("failed", run=1), attempt_started(1, run=2), ranks_running(1)))
    assert ways(effect) == ["running"]
    assert "ended_at" not in effect.columns


def test_no_records_have_no_effect(job):
    assert project(job, [], []) is None


def test_a_job_ends_once_whatever_its_journal_says_afterwards(job, records):
    effect = project(job, [], records(job_ended("failed"), job_ended("succeeded"), retry(1), ranks_running(1)))
    assert ways(effect) == ["failed"]
    cancelled = a_job(state=JobState.CANCELLED, run=1)
    assert ways(project(cancelled, [], records(attempt_started(1), ranks_running(1), job_ended("failed")))) == []


def test_a_drained_job_returns_to_the_queue_and_one_cancelled_between_attempts_has_an_outcome(job, records):
    effect = project(job, [], records(job_ended("queued")))
    assert ways(effect) == ["queued"]
    assert effect.requeued
    assert "ended_at" not in effect.columns
    assert effect.columns["outcome"]["class"] == "preempted"
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


CORRUPTED = {"fault": "corrupt-snapshot", "rank": None, "snapshot": 40}
KILLED = {"fault": "kill", "rank": 1, "snapshot": None}


def fault_injected(number, **fields):
    return "fault_injected", {"attempt": number, **fields}


SKIP = {"step": 40, "reason": "model.pt: another checksum"}


@pytest.mark.parametrize(
    ("kind", "fields", "event", "sentence"),
    [
        ("fault_injected", CORRUPTED, "chaos", "corrupt-snapshot of step 40"),
        ("fault_injected", KILLED, "chaos", "kill rank 1"),
        ("snapshot_skipped", SKIP, "snapshot_skipped", "the snapshot of step 40 was skipped: " + SKIP["reason"]),
        (RecordType.STRAGGLER, {"rank": 1, "share": 0.75}, "straggler", "the others wait 75% of the time for rank 1"),
        (RecordType.STRAGGLER, {"rank": 1, "share": None}, "straggler", "the others no longer wait for rank 1"),
    ],
)
def test_faults_skipped_snapshots_and_stragglers_become_events(job, records, kind, fields, event, sentence):
    lines = [attempt_started(1), ranks_running(1), (kind, {"attempt": 1, **fields})]
    effect = project(job, [], records(*lines))
    assert [(each.kind, each.sentence) for each in effect.events] == [(event, f"attempt 1: {sentence}")]
    assert ways(effect) == ["running"]


def test_nothing_is_rolled_back_to_a_snapshot_that_is_missing(job, records):
    rollback = {"run": 1, "step": 40}
    events = project(job, [], records(("rolled_back", rollback), ("rolled_back", {**rollback, "missing": True}))).events
    assert [each.kind for each in events] == ["rolled_back", "snapshot_skipped"]
    assert events[1].sentence == "there is no snapshot of step 40 any more: the job continues from its latest one"


def test_a_stall_is_shown_while_it_lasts_and_its_time_is_kept(job, records):
    found = {"sentence": "rank 1 sleeps", "since": 1.5, "hung_at": 30.0, "rank": 1}
    began = [attempt_started(1), ranks_running(1), ("stalled", {"attempt": 1, **found})]
    moved = ("stalled", {"attempt": 1, **found, "sentence": "rank 0 sleeps", "since": 1.6, "rank": 0})
    lasting = project(job, [], records(*began, moved))
    assert lasting.columns["stalled"] == {**found, "sentence": "rank 0 sleeps", "since": 1.6, "rank": 0}
    assert lasting.attempts[1].stalls == [[1.5]]
    assert [(each.kind, each.sentence) for each in lasting.events] == [
        ("stalled", "attempt 1: no progress: rank 1 sleeps")
    ]
    over = project(job, [], records(*began, ("stalled", {"attempt": 1, "sentence": None})))
    assert (over.columns["stalled"], over.attempts[1].stalls) == (None, [[1.5, 4.0]])
    assert [each.kind for each in over.events] == ["stalled", "progress"]
    ended = project(job, [], records(*began, attempt_ended(1)))
    assert (ended.columns["stalled"], ended.attempts[1].stalls) == (None, [[1.5, 4.0]])


def test_injected_faults_are_kept_with_their_attempt(job, records):
    effect = project(job, [], records(attempt_started(1), fault_injected(1, **CORRUPTED), fault_injected(1, **KILLED)))
    kept = [(each.at, each.fault, each.rank, each.snapshot) for each in effect.attempts[1].faults]
    assert kept == [(2.0, *CORRUPTED.values()), (3.0, *KILLED.values())]


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
    keeper = {"pid": 1, "start_time": 2, "boot_id": "b"}
    return "keeper_started", {"run": run, "keeper": keeper, **({} if devices is None else {"devices": devices})}


def devices_held(*devices, run=1):
    return "devices_held", {"run": run, "devices": list(devices)}


def begun_on(number, *devices, run=1):
    return "attempt_started", {"attempt": number, "run": run, "world_size": len(devices), "devices": list(devices)}


RESIZED = Outcome.from_json({"class": "preempted", "message": "…", "evidence": {"ending": "resize"}}).to_json()


def resizing(devices, wanted):
    displaced = {"kind": "resize", "by": None, "reason": "…", "at": 1.0}
    return a_job(state=JobState.RUNNING, run=1, devices=devices, wanted_devices=wanted, displaced=displaced)


def test_a_keeper_of_an_earlier_version_does_not_change_devices(job, records):
    assert project(job, [], records(keeper_started(None))).columns["can_resize"] is False
    assert project(job, [], records(keeper_started(["cpu:0", "cpu:1"]))).columns["can_resize"] is True


@pytest.mark.parametrize(
    ("had", "wanted", "record", "expected"),
    [
        ("abc", "a", devices_held(*"abc"), None),
        ("abc", "a", begun_on(2, *"abc"), None),
        ("abc", "a", begun_on(2, "a"), ["a"]),
        ("abc", "a", devices_held("a"), ["a"]),
        ("abc", "a", keeper_started(["a"]), ["a"]),
        ("abc", "a", devices_held("a", run=0), None),
        ("ab", "a", begun_on(1, "a", run=0), None),
        ("ab", "ab", devices_held(*"ab"), None),
        ("ab", "ab", begun_on(2, *"ab"), ["a", "b"]),
    ],
)
def test_slots_are_settled_once_the_journal_shows_that_only_they_are_used(records, had, wanted, record, expected):
    effect = project(resizing(list(had), list(wanted)), [], records(record))
    if expected is None:
        assert effect is None or "wanted_devices" not in effect.columns
    else:
        settled = {"devices": expected, "wanted_devices": None, "displaced": None, "devices_since": 1.0}
        assert {name: effect.columns[name] for name in settled} == settled


def test_a_resized_job_stays_running_and_its_next_attempt_is_no_restart(records):
    job = resizing(["a", "b"], ["a"])
    first = project(job, [], records(begun_on(1, "a", "b"), ranks_running(1), attempt_ended(1, RESIZED), retry(1)))
    assert ways(first) == []
    job.journal_offset = first.offset
    after = project(job, list(first.attempts.values()), records(*[("x", {})] * 9, begun_on(2, "a"), ranks_running(2)))
    assert ways(after) == []
    assert after.columns["restarts"] == 0
