"""The queue that the scheduler keeps in memory agrees with the database after any change."""

import random
import time

import pytest
from sqlmodel import col, select

from job_examples import a_job, an_experiment, cpu_machine, open_store
from rekindle.contract.job_options import SlurmOptions
from rekindle.contract.states import HOLDING_SLOTS, JobIntent, JobState
from rekindle_service.scheduler.allocation import QueuePosition
from rekindle_service.scheduler.fair_share import UsageMeter
from rekindle_service.scheduler.queue_scheduler import QueuePlanner
from rekindle_service.scheduler.queue_state import QueueState
from rekindle_service.store.tables import Job


@pytest.fixture
def store(tmp_path):
    store = open_store(tmp_path)
    yield store
    store.close()


def agrees(state, store):
    state.refresh()
    rows = {job.id: job for job in store.queue.jobs()}
    assert {job.id: job for job in state.queued} == rows
    holding = select(Job).where(col(Job.state).in_(HOLDING_SLOTS)).order_by(col(Job.number))
    assert store.holding() == store.rows(holding)
    assert state.holding == store.holding()
    assert state.kinds == {job.spec.device_kind if job.spec.slurm is None else "slurm" for job in rows.values()}


def test_it_follows_every_change(store):
    state, chance = QueueState(store), random.Random(5)
    jobs = []
    for _ in range(60):
        match chance.randrange(6):
            case 0 | 1:
                options = {"device": chance.choice(["cpu", "cuda"]), "slurm": chance.choice([None, SlurmOptions()])}
                jobs.append(store.add_job(a_job(priority=chance.randrange(2), **options)))
            case 2 if jobs:
                store.transition(
                    chance.choice(jobs).id, JobState.STARTING, expected={JobState.QUEUED}, reason="", devices=["cpu:0"]
                )
            case 3 if jobs:
                store.transition(chance.choice(jobs).id, JobState.SUCCEEDED, expected=HOLDING_SLOTS, reason="")
            case 4 if jobs:
                store.set_intent(chance.choice(jobs).id, chance.choice(list(JobIntent)))
            case 5 if jobs:
                store.delete_job(chance.choice(jobs).id)
        if chance.random() < 0.5:
            state.refresh()
    agrees(state, store)
    store.recovery.withdraw([job.id for job in jobs[-3:]])
    agrees(state, store)


def test_only_what_has_changed_is_written(store):
    one, two = store.add_job(a_job()), store.add_job(a_job())
    state = QueueState(store)
    state.refresh()
    places = {one.id: QueuePosition(1, "slots", 60.0), two.id: QueuePosition(2, "slots")}
    state.show(state.changed_places(places, 1000.0))
    agrees(state, store)
    assert state.changed_places(places, 1001.0) == {}, "an estimate is no better than a few seconds"
    assert set(state.changed_places(places, 1010.0)) == {one.id}
    assert set(state.changed_places({one.id: QueuePosition(1, "slots", 60.0)}, 1000.0)) == {two.id}
    version = store.feed.version()
    state.show({})
    assert store.feed.version() == version


def test_the_state_of_a_job_that_others_wait_for_is_asked_once_and_followed(store):
    job, state = store.add_job(a_job()), QueueState(store)
    state.refresh()
    assert state.job_state(job.id) is JobState.QUEUED
    assert state.job_state("nosuchjob1") is None
    assert state.job_label(job.id) == f"{job.name} (#{job.number})"
    assert state.job_label("nosuchjob1") == "job nosuchjob1"
    store.patch_job(job.id, name="renamed")
    state.refresh()
    assert state.job_label(job.id) == f"renamed (#{job.number})"
    store.transition(job.id, JobState.CANCELLED, expected={JobState.QUEUED}, reason="")
    state.refresh()
    assert state.job_state(job.id) is JobState.CANCELLED
    store.delete_job(job.id)
    state.refresh()
    assert state.job_state(job.id) is JobState.CANCELLED


def test_of_a_long_queue_the_first_positions_are_shown(store):
    store.experiments.add(an_experiment("e" * 10), [a_job(experiment_id="e" * 10) for _ in range(300)])
    planner = QueuePlanner(store, cpu_machine(2))
    first = planner.plan({}, None, lambda _: None)
    planner.show(first)
    assert len(first.starts) == 2
    shown = [job.queue_position for job in store.queue.jobs() if job.queue_position]
    assert sorted(shown) == list(range(1, 201))


def test_a_job_that_is_only_considered_leaves_no_trace_in_the_queue(store):
    held, waiting = (
        store.add_job(a_job(min_ranks=3, max_ranks=3, priority=1)),
        store.add_job(a_job(min_ranks=2, max_ranks=2)),
    )
    planner, draft = QueuePlanner(store, cpu_machine(2)), a_job(priority=9, device="cuda")
    version = store.feed.version()
    for job, starts in ((draft, [waiting.id]), (a_job(priority=9), [])):
        allocation, holding = planner.plan_with(job, {}, None)
        assert ([each.id for each, _ in allocation.starts if each is not job], holding) == (starts, [])
        assert (planner.state.queued.get(job.id), planner.state.kinds) == (None, {"cpu"})
        agrees(planner.state, store)
    assert store.feed.version() == version
    assert held.id in allocation.queue_positions


def test_what_owners_use_is_counted_by_a_clock_that_cannot_jump_and_survives_a_restart(store):
    job = a_job(owner="ann", devices=["cpu:0", "cpu:1"], allocated_at=time.time())
    meter = UsageMeter(store.queue, half_life=1e12)
    meter.count([job], 1000.0)
    meter.count([job], 1010.0)
    assert meter.slot_seconds["ann"] == pytest.approx(20, abs=0.5)
    meter.count([], 1020.0)
    assert store.queue.usage()["ann"].slot_seconds == pytest.approx(40, abs=0.5), "written when nobody holds slots"
    again = UsageMeter(store.queue, half_life=1e12)
    again.count([], 5.0)
    assert again.slot_seconds["ann"] == pytest.approx(40, abs=0.5)
