"""Rows and intents while slots change hands: no slot is lost or allocated twice."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from job_examples import a_job, cpu_machine, gpu_machine, open_store, queued_job
from rekindle.contract.files import read_json
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.config.home import Home
from rekindle_service.config.notification_targets import NotificationTarget
from rekindle_service.machine.health import DeviceHealth
from rekindle_service.notifications.payload import build_payload, event_type
from rekindle_service.scheduler.displacer import DisplacementRules, Displacer
from rekindle_service.scheduler.running_jobs import IntentWriter
from rekindle_service.store import Store
from rekindle_service.store.projection import RowChanges, StateChange


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path)
    yield store
    store.close()


def running(store: Store, devices: list[str], **columns: object):
    job = store.add_job(a_job(**columns))
    store.transition(job.id, JobState.STARTING, expected={JobState.QUEUED}, reason="…", devices=devices, run=1)
    store.transition(job.id, JobState.RUNNING, expected={JobState.STARTING}, reason="…", can_resize=True)
    return store.job(job.id)


def ended(job, to: JobState) -> RowChanges:
    return RowChanges(job.journal_offset + 1, [StateChange(to, "…", 9.0)], {"devices": []}, requeued=True)


def test_a_preempted_job_keeps_its_slots_until_it_is_back_in_the_queue_and_is_not_held(store):
    job = running(store, ["cpu:0"])
    taken = store.displace(job, "preempt", "Job #2 gets its slots.", by="other")
    assert (taken.intent, taken.state, taken.devices, taken.preemptions) == ("run", "running", ["cpu:0"], 0)
    assert (taken.displaced["kind"], taken.displaced["by"]) == ("preempt", "other")
    back = store.apply_journal(taken, ended(taken, JobState.QUEUED))
    assert (back.intent, back.state, back.devices, back.preemptions) == ("run", "queued", [], 1)
    assert (back.displaced, back.number) == (None, job.number)
    assert [event.kind for event in store.events(job.id)][-2:] == ["preempt", "state"]


def test_a_job_that_ends_before_it_is_stopped_was_not_preempted_and_one_that_a_person_drains_is_held(store):
    taken = store.displace(running(store, ["cpu:0"]), "preempt", "…")
    done = store.apply_journal(taken, ended(taken, JobState.SUCCEEDED))
    assert (done.state, done.preemptions, done.displaced) == ("succeeded", 0, None)
    taken = store.displace(running(store, ["cpu:0"]), "preempt", "…")
    taken = store.set_intent(taken.id, JobIntent.DRAIN)
    assert store.apply_journal(taken, ended(taken, JobState.QUEUED)).intent == "hold"


def test_a_decision_about_a_row_that_has_changed_since_is_dropped(store):
    job = running(store, ["cpu:0"])
    store.set_intent(job.id, JobIntent.CANCEL)
    assert store.displace(job, "preempt", "…") is None
    other = running(store, ["cpu:1"])
    assert store.displace(other, "resize", "…", wanted=["cpu:1", "cpu:2"]) is not None
    assert store.displace(other, "preempt", "…") is None
    seen = store.job(other.id)
    assert store.displace(seen, "resize", "…", wanted=["cpu:1"]).devices == ["cpu:1", "cpu:2"]
    assert store.apply_journal(seen, RowChanges(1, columns={"devices": ["cpu:1"]})) is None


def test_the_keeper_is_asked_to_drain_or_to_continue_on_other_slots(store, tmp_path):
    home = Home(tmp_path / "home")
    writer = IntentWriter(home, 600.0, None, 60.0, gpu_machine(2))
    queued = queued_job(store, home, device="cuda", min_ranks=1, max_ranks=2)
    started = {"devices": ["cuda:0"], "run": 1, "can_resize": True}
    job = store.transition(queued.id, JobState.STARTING, expected={JobState.QUEUED}, reason="…", **started)

    def asked(row):
        writer.write(row)
        intent = read_json(home.run_dir(row.id).intent)
        return intent["want"], intent["devices"], intent["gpus"], intent["reason"]

    assert asked(job) == ("run", ["cuda:0"], ["GPU-0000"], None)
    grown = store.displace(job, "resize", "1 slot is free.", wanted=["cuda:0", "cuda:1"])
    assert asked(grown) == ("run", ["cuda:0", "cuda:1"], ["GPU-0000", "GPU-0001"], "1 slot is free.")
    stopped = store.displace(grown, "preempt", "Job #2 gets its slots.")
    assert asked(stopped) == ("drain", ["cuda:0", "cuda:1"], ["GPU-0000", "GPU-0001"], "Job #2 gets its slots.")
    cancelled = store.set_intent(stopped.id, JobIntent.CANCEL)
    assert asked(cancelled)[::3] == ("cancel", None)


def test_the_displacer_acts_when_time_alone_allows_it_and_when_a_device_fails(store, monkeypatch):
    now, health = [1000.0], DeviceHealth()
    monkeypatch.setattr("time.time", lambda: now[0])
    displacer = Displacer(store, cpu_machine(2), DisplacementRules(min_run=60.0), health)
    job, head = running(store, ["cpu:0", "cpu:1"]), a_job(priority=1)
    displacer.act([head])
    assert store.job(job.id).displaced is None
    assert not displacer.is_due()
    now[0] += 61
    assert displacer.is_due()
    displacer.act([])
    assert not displacer.is_due(), "nobody waits any more"
    health.set_failed({"cpu:1": "disabled by ann"})
    assert displacer.is_due()
    displacer.act([])
    assert store.job(job.id).displaced["kind"] == "device"
    assert not displacer.is_due()


def test_the_owner_of_a_job_that_another_owner_stops_is_notified_of_whose_job_it_is(store):
    taken, head = running(store, ["cpu:0"], owner="bob"), a_job(priority=10, owner="ann", name="urgent")
    for preemption, stops in (("off", False), ("own", False), ("all", True)):
        rules = DisplacementRules(preemption, min_run=0.0)
        Displacer(store, cpu_machine(1), rules, DeviceHealth()).act([head])
        assert (store.job(taken.id).displaced is not None) == stops, preemption
    reason = f'Job "urgent" (#{head.number}) of ann, of priority 10, gets its slots.'
    assert store.job(taken.id).displaced["reason"] == reason
    event = store.events(taken.id)[-1]
    kind = event_type(event)
    assert kind in NotificationTarget(command=("/bin/true",)).events, "by default"
    body = json.loads(build_payload(event, kind, store.job(taken.id), []).body)
    assert (body["event"], body["reason"], body["job"]["owner"]) == ("preempted", reason, "bob")
