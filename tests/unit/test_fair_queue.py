"""The order of the queue, reservations, durations and the use of slots, one decision at a time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_examples import a_job, cpu_machine, gpu_machine
from rekindle.contract.job_options import LinkRule
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.config.settings import Quota
from rekindle_service.job_wording import like_name
from rekindle_service.jobs.quotas import Quotas, decayed
from rekindle_service.scheduler.allocation import AllocationState, allocate
from rekindle_service.scheduler.durations import Durations, Forecast
from rekindle_service.scheduler.fair_share import QueueIndex, step, used_since
from rekindle_service.store.tables import SlotUsage

HOUR = 3600.0
DAY = 86400.0


def order(jobs, used=None, cost=lambda _: 1.0):
    return [job.name for job in QueueIndex(jobs).ordered(used or {}, cost)]


def named(name, **columns):
    return a_job(name=name, **columns)


# --- order


def test_priority_comes_first_then_the_owner_who_has_used_least_then_the_number():
    jobs = [named("a1", owner="ann"), named("b1", owner="bob"), named("a2", owner="ann"), named("b2", owner="bob")]
    urgent = named("urgent", owner="ann", priority=1)
    assert order([*jobs, urgent], {"ann": 100.0}) == ["urgent", "b1", "b2", "a1", "a2"]
    assert order(jobs) == ["a1", "b1", "a2", "b2"], "without any use they take turns, the first comer first"
    assert order([named("x"), named("y"), named("z", owner="local")]) == ["x", "y", "z"], "jobs without an owner"


def test_jobs_before_one_in_the_queue_count_as_if_they_had_run():
    jobs = [named(f"a{index}", owner="ann") for index in range(3)] + [named("b", owner="bob")]
    assert order(jobs, {"bob": 1.5}) == ["a0", "a1", "b", "a2"]
    assert order(jobs, {"bob": 1.5}, cost=lambda _: 10.0) == ["a0", "b", "a1", "a2"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 1)), max_size=12), st.data())
def test_every_job_comes_once_whatever_was_put_and_removed(rows, data):
    index = QueueIndex()
    jobs = [named(str(place), owner=owner, priority=priority) for place, (owner, priority) in enumerate(rows)]
    for job in jobs:
        index.put(job)
    gone = data.draw(st.sets(st.sampled_from([job.id for job in jobs]))) if jobs else set()
    for job_id in gone:
        index.remove(job_id)
    for job in jobs[::2]:
        if job.id not in gone:
            index.put(job.model_copy(update={"priority": 5}))
    ordered = list(index.ordered({}, lambda _: 1.0))
    assert sorted(job.id for job in ordered) == sorted(job.id for job in jobs if job.id not in gone)
    assert [job.priority for job in ordered] == sorted((job.priority for job in ordered), reverse=True)
    assert len(index) == len(ordered)


# --- before one's turn


def machine_with(seconds, queue, *, slots=2, machine=None, held=None, **situation):
    """``held`` slots of a running job, which leaves them in ``seconds``."""
    running = a_job(devices=held or ["cpu:0"])
    machine = machine or cpu_machine(slots)
    made = allocate(queue, AllocationState(machine, [running], remaining=lambda _: seconds, **situation))
    return running, made


@pytest.mark.parametrize(
    ("preemption", "priority", "addition"),
    [
        ("own", 5, "; its priority does not stop jobs of other owners (preemption is own)"),
        ("off", 5, "; its priority stops no running job (preemption is off)"),
        ("all", 5, ""),
        ("own", 0, ""),
    ],
)
def test_a_job_that_must_not_stop_others_says_so_while_it_waits(preemption, priority, addition):
    running = a_job(devices=["cpu:0"], state="running", owner="bob")
    urgent = a_job(priority=priority, owner="ann")
    made = allocate([urgent], AllocationState(cpu_machine(1), [running], preemption=preemption))
    assert made.queue_positions[urgent.id].waiting_for == f"1 CPU slot, 0 free{addition}"
    own = a_job(priority=priority, owner="bob")
    if preemption == "own":
        made = allocate([own], AllocationState(cpu_machine(1), [running], preemption=preemption))
        assert made.queue_positions[own.id].waiting_for == "1 CPU slot, 0 free"


def limited(job):
    return job.spec.time_limit


def test_a_job_that_ends_before_the_reservation_starts_before_its_turn():
    big, short, long, unknown = (
        a_job(min_ranks=2, max_ranks=2), a_job(time_limit=50.0), a_job(time_limit=101.0), a_job(),
    )  # fmt: skip
    running, made = machine_with(100.0, [big, unknown, long, short], max_seconds=limited, expected=limited)
    assert [(job.id, names) for job, names in made.starts] == [(short.id, ["cpu:1"])]
    assert made.queue_positions[big.id] == (
        1, f"2 CPU slots, 1 free, until #{running.number} ends", 100.0,
    )  # fmt: skip
    place = made.queue_positions[unknown.id]
    assert place[:2] == (2, f"after #{big.number}, which needs 2 slots")
    assert made.waiting_head == [big, unknown, long]


def test_a_job_that_leaves_enough_slots_starts_however_long_it_runs():
    big, unknown = a_job(min_ranks=2, max_ranks=2), a_job()
    _, made = machine_with(100.0, [big, unknown, a_job()], slots=4, held=["cpu:0", "cpu:1", "cpu:2"])
    assert [(job.id, names) for job, names in made.starts] == [(unknown.id, ["cpu:3"])]
    assert made.reservations[0].slots == {"cpu:1", "cpu:2"}, "those that become free last"


def test_while_it_is_unknown_when_slots_become_free_only_jobs_of_known_length_start_before_their_turn():
    big, unknown, known = a_job(min_ranks=2, max_ranks=2), a_job(), a_job(time_limit=60.0)
    _, made = machine_with(None, [big, unknown, known], max_seconds=limited)
    assert [job.id for job, _ in made.starts] == [known.id]
    assert made.queue_positions[big.id] == (1, "2 CPU slots, 1 free", None)


def test_the_estimate_of_each_follows_from_those_before_it():
    jobs = [a_job(min_ranks=2, max_ranks=2, time_limit=60.0) for _ in range(3)]
    _, made = machine_with(100.0, jobs, max_seconds=limited, expected=limited)
    assert [made.queue_positions[job.id].starts_in for job in jobs] == [100.0, 160.0, 220.0]
    assert made.queue_positions[jobs[2].id].waiting_for == f"2 CPU slots, 1 free, after #{jobs[0].number}"


def test_a_pair_that_must_be_linked_is_reserved_where_it_will_be_free():
    links = {(0, 1): "nvlink", (2, 3): "nvlink", (0, 2): "sys", (0, 3): "sys", (1, 2): "sys", (1, 3): "sys"}
    pair = a_job(device="cuda", min_ranks=2, max_ranks=2, links=LinkRule.REQUIRED)
    other = a_job(device="cuda")
    _, made = machine_with(100.0, [pair, other], machine=gpu_machine(4, links), held=["cuda:0", "cuda:3"])
    assert made.reservations[0].slots == {"cuda:0", "cuda:1"}
    assert [(job.id, names) for job, names in made.starts] == [(other.id, ["cuda:2"])]


def test_jobs_share_a_gpu_only_where_they_ask_for_it():
    quarter = [a_job(device="cuda", gpu_share=0.25) for _ in range(5)]
    whole = a_job(device="cuda")
    made = allocate([*quarter, whole], AllocationState(gpu_machine(2)))
    slots = [names[0] for _, names in made.starts]
    assert slots == ["cuda:0"] * 4 + ["cuda:1"]
    assert made.queue_positions[whole.id].waiting_for == "1 GPU slot, 0 free"


def test_slots_that_must_not_be_used_are_named_with_the_reason():
    big, small = a_job(min_ranks=2, max_ranks=2), a_job()
    made = allocate([big, small], AllocationState(cpu_machine(2), unusable={"cpu:1": "disabled by ann"}))
    assert [(job.id, names) for job, names in made.starts] == [(small.id, ["cpu:0"])]
    reason = "2 CPU slots, but only 1 can be used now (cpu:1: disabled by ann)"
    assert made.queue_positions[big.id] == (None, reason, None)


# --- limits


def test_whoever_has_reached_their_quota_waits_and_keeps_nobody_else_waiting():
    quotas = Quotas({"ann": Quota(slots=2, queued=None)})
    running = a_job(owner="ann", devices=["cpu:0"])
    pair, elastic = a_job(owner="ann", min_ranks=2, max_ranks=2), a_job(owner="ann", max_ranks=4)
    more, other = a_job(owner="ann"), a_job(owner="bob", min_ranks=2, max_ranks=2)
    made = allocate([pair, elastic, more, other], AllocationState(cpu_machine(4), [running], quotas=quotas))
    assert [(job.id, len(names)) for job, names in made.starts] == [(elastic.id, 1), (other.id, 2)]
    assert made.queue_positions[pair.id][:2] == (None, "its owner ann holds 1 of 2 slots, and it needs 2")
    assert made.queue_positions[more.id][:2] == (None, "its owner ann holds 2 of 2 slots")


def test_an_experiment_runs_as_many_jobs_at_once_as_it_may():
    jobs = [a_job(experiment_id="e", parallel=2) for _ in range(3)]
    other = a_job(experiment_id="f", parallel=1)
    running = a_job(experiment_id="e", devices=["cpu:0"])
    made = allocate([*jobs, other], AllocationState(cpu_machine(8), [running]))
    assert [job.id for job, _ in made.starts] == [jobs[0].id, other.id]
    reason = "another job of its experiment to end: it runs 2 jobs at a time"
    assert made.queue_positions[jobs[1].id] == (None, reason, None)


@pytest.mark.parametrize("fate", [*JobState, None])
def test_after_any_waits_for_the_end_whatever_it_is(fate):
    job = a_job(after_any=["before"])
    made = allocate([job], AllocationState(cpu_machine(1), (), lambda _: fate))
    over = fate in {None, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}
    assert bool(made.starts) is over
    assert over or made.queue_positions[job.id] == (None, "job before to end", None)


def test_held_jobs_cost_their_owner_nothing():
    held, mine = named("held", owner="ann", intent=JobIntent.HOLD), named("mine", owner="ann")
    index = QueueIndex([held, mine, named("other", owner="bob")])
    found = index.ordered({}, lambda _: 1.0, lambda job: job.intent is JobIntent.RUN)
    assert [job.name for job in found] == ["held", "mine", "other"]


# --- durations


def ended(name, seconds, **columns):
    row = {"state": JobState.SUCCEEDED, "started_at": 1000.0, "ended_at": 1000.0 + seconds, "run": 1}
    return a_job(name=name, **{**row, **columns})


def test_how_long_a_job_runs_is_measured_of_jobs_of_the_same_owner_whose_names_differ_in_numbers_only():
    durations = Durations(lambda: [ended("eval 3", 30.0), ended("eval 2", 10.0, owner="bob")])
    assert durations.of(a_job(name="eval 4")) == [30.0]
    durations.add(ended("eval 17", 50.0))
    durations.add(ended("eval 18", 999.0, run=2))
    durations.add(ended("eval 19", 1.0, state=JobState.FAILED))
    assert durations.of(a_job(name="eval 4")) == [50.0, 30.0]
    assert durations.of(a_job(name="eval 4", owner="bob")) == [10.0]
    assert durations.of(a_job(name="train 4")) == ()
    assert like_name("lr 2: --lr=0.1") == like_name("lr 13: --lr=0.01")


@pytest.mark.parametrize(
    ("limit", "measured", "ran", "latest", "likely", "left"),
    [
        (None, [], 5.0, None, None, None),
        (100.0, [], 5.0, 100.0, 100.0, 95.0),
        (None, [10.0, 20.0, 60.0], 5.0, 60.0, 20.0, 15.0),
        (100.0, [10.0, 20.0, 60.0], 5.0, 100.0, 20.0, 15.0),
        (100.0, [10.0, 20.0, 60.0], 30.0, 100.0, 20.0, 70.0),
        (None, [10.0, 20.0, 60.0], 30.0, 60.0, 20.0, None),
        (100.0, [], 130.0, 100.0, 100.0, 1.0),
        (100.0, [], -1e6, 100.0, 100.0, 100.0),  # the clock was set back
    ],
)
def test_a_time_limit_bounds_what_was_measured(limit, measured, ran, latest, likely, left):
    job = a_job(time_limit=limit, allocated_at=1000.0)
    forecast = Forecast(Durations(lambda: [ended(job.name, seconds) for seconds in measured]), 1000.0 + ran)
    assert (forecast.max_seconds(job), forecast.expected(job), forecast.remaining(job)) == (latest, likely, left)


def test_a_job_that_is_stopped_for_another_leaves_its_slots_soon():
    job = a_job(allocated_at=0.0, displaced={"kind": "preempt", "by": "x", "reason": "", "at": 1.0})
    assert Forecast(Durations(tuple), 10.0).remaining(job) == 30.0


@pytest.mark.parametrize(
    ("left", "limit", "measured", "shown"),
    [
        (400.0, None, [], 400.0),
        (400.0, None, [50.0], 400.0),  # its own time left, not what others took
        (400.0, 100.0, [], 95.0),
        (1e9, 100.0, [], 95.0),
        (0.0, None, [], 1.0),  # any moment
        (-30.0, None, [], 1.0),
        (-61.0, None, [], None),  # it runs on although it should have ended
        (-61.0, None, [50.0], 45.0),
        (None, None, [50.0], 45.0),
    ],
)
def test_the_time_left_that_a_job_prints_is_shown_and_decides_nothing(left, limit, measured, shown):
    job = a_job(time_limit=limit, allocated_at=1000.0)
    durations = Durations(lambda: [ended(job.name, seconds) for seconds in measured])
    forecast = Forecast(durations, 1005.0, {} if left is None else {job.id: left})
    assert forecast.time_left(job) == shown
    assert forecast.remaining(job) == Forecast(durations, 1005.0).remaining(job)


def test_queued_jobs_are_expected_to_run_as_long_as_running_ones_of_their_name():
    running, queued = named("vit-1", allocated_at=1000.0), named("vit-2")
    forecast = Forecast(Durations(tuple), 1100.0, {running.id: 300.0})
    forecast.note_running([running])
    assert (forecast.length(queued), forecast.expected(queued), forecast.max_seconds(queued)) == (400.0, None, None)
    assert forecast.length(named("bert")) is None


def test_an_estimate_says_when_jobs_start_and_lets_none_start_before_its_turn():
    first, short, unknown = a_job(min_ranks=2, max_ranks=2), a_job(time_limit=50.0), a_job()
    for left in (10.0, 100.0, 1e9):
        _, made = machine_with(
            None, [first, unknown, short], max_seconds=limited, shown_remaining=lambda _, left=left: left
        )
        assert [job.id for job, _ in made.starts] == [short.id], "as without the estimate"
        assert made.queue_positions[first.id].starts_in == max(left, 0)
        assert [(each.job.id, each.starts_in) for each in made.predictions] == [(first.id, left)]
    _, made = machine_with(100.0, [first, short], max_seconds=limited, shown_remaining=lambda _: None)
    assert [job.id for job, _ in made.starts] == [short.id]
    assert made.queue_positions[first.id].starts_in is None


# --- what was used


def used(slot_seconds: float, at: float) -> SlotUsage:
    return SlotUsage(owner="ann", slot_seconds=slot_seconds, at=at)


def test_slot_seconds_of_a_half_life_ago_count_half():
    assert step({"ann": 100.0}, {"bob": 2.0}, 10.0, 10.0) == {"ann": 50.0, "bob": 20.0}
    assert decayed(used(100.0, at=0.0), 7 * DAY, 7 * DAY) == 50.0
    assert decayed(used(100.0, at=1000.0), 0.0, 7 * DAY) == 100.0, "the clock was set back"


def test_what_was_used_while_no_server_ran_is_counted_once_and_never_more_than_can_be():
    running = a_job(owner="ann", devices=["cpu:0", "cpu:1"], allocated_at=500.0)
    assert used_since({}, [running], 600.0, math.inf) == {"ann": 200.0}
    assert used_since({"ann": used(7.0, at=590.0)}, [running], 600.0, math.inf) == {"ann": 27.0}
    assert used_since({"ann": used(7.0, at=900.0)}, [running], 600.0, math.inf) == {"ann": 7.0}
    jumped = used_since({}, [running], 1e12, math.inf)
    assert jumped == {"ann": 2 * 30 * DAY}
