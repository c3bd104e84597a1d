import json

import pytest

from rekindle.contract.environment import FailureStats
from rekindle.contract.job_options import SnapshotPolicy
from rekindle.training.snapshots import snapshot_schedule
from rekindle.training.snapshots.snapshot_schedule import SnapshotOverhead, SnapshotSchedule, effective_policy

AUTO = SnapshotPolicy(auto=True)


def overhead_of(cost, writing=0.0):
    """The overhead after one snapshot for which training waited ``cost`` seconds."""
    measured = SnapshotOverhead()
    measured.started(cost)
    measured.finished(writing)
    return measured


def mean_time(failures, running):
    return SnapshotSchedule(AUTO, 100.0, failures).mean_time_between_failures(100.0 + running)


def schedule(snapshot_policy, **settings):
    return SnapshotSchedule(snapshot_policy, 100.0, **settings)


def saved(at, *, blocked, writing=0.0):
    """An ``auto`` schedule that took its first snapshot ``at``."""
    auto = schedule(AUTO)
    auto.on_started(at, blocked)
    auto.overhead.finished(writing)
    return auto


EVERY_NINE = SnapshotPolicy(every_steps=9)
NOTHING = {"every_steps": None, "every_seconds": None, "every_epochs": None, "keep": 7}
FIVE = {"every_steps": 5, "every_seconds": None, "every_epochs": None, "keep": 2}


@pytest.mark.parametrize(
    ("script", "submitter", "expected"),
    [
        (EVERY_NINE, FIVE, SnapshotPolicy(every_steps=5, keep_last=2)),
        (EVERY_NINE, {"auto": True}, AUTO),
        (EVERY_NINE, NOTHING, EVERY_NINE),
        (EVERY_NINE, None, EVERY_NINE),
        (SnapshotPolicy(), NOTHING, SnapshotPolicy(auto=True, keep_last=7)),
        (SnapshotPolicy(keep_last=9), None, SnapshotPolicy(auto=True, keep_last=9)),
        (SnapshotPolicy(monitor="acc"), {"every_steps": 5}, SnapshotPolicy(every_steps=5, monitor="acc")),
        (SnapshotPolicy(monitor="acc"), {"monitor": "-loss"}, SnapshotPolicy(auto=True, monitor="-loss")),
        (SnapshotPolicy(), {"every_steps": 5, "by_moonlight": True}, SnapshotPolicy(every_steps=5)),
    ],
)
def test_the_submitters_policy_takes_precedence_over_the_scripts_and_auto_is_the_default(script, submitter, expected):
    assert effective_policy(script, None if submitter is None else json.dumps(submitter)) == expected


def test_periodic_snapshots_fall_on_the_same_steps_and_epochs_in_every_attempt():
    every_four, every_two = schedule(SnapshotPolicy(every_steps=4)), schedule(SnapshotPolicy(every_epochs=2))
    assert [step for step in range(1, 13) if every_four.due_after_step(step, now=1e9)] == [4, 8, 12]
    assert not every_four.due_after_epoch(3, now=1e9)
    assert [epoch for epoch in range(6) if every_two.due_after_epoch(epoch, now=1e9)] == [1, 3, 5]


def test_the_interval_starts_again_after_each_try():
    by_time = schedule(SnapshotPolicy(every_seconds=10.0))
    assert not by_time.due_after_step(1, now=109.9)
    assert by_time.due_after_step(1, now=110.0)
    by_time.on_started(now=112.0, blocked=2.0)
    assert not by_time.due_after_step(2, now=121.9)
    assert by_time.due_after_epoch(0, now=122.0)


def test_a_given_interval_is_kept_however_expensive_it_is():
    given = schedule(SnapshotPolicy(every_seconds=10.0))
    given.on_started(now=100.0, blocked=9.0)
    given.overhead.finished(30.0)
    assert given.due_after_step(1, now=111.0)


def test_a_pending_snapshot_follows_at_the_next_step():
    every_four = schedule(SnapshotPolicy(every_steps=4))
    every_four.pending = True
    assert every_four.due_after_step(5, now=101.0)
    every_four.on_started(now=101.0, blocked=0.1)
    assert not every_four.due_after_step(6, now=102.0)


def test_snapshots_in_shared_memory_take_a_twentieth_of_the_time_at_most():
    rarely = schedule(SnapshotPolicy(every_steps=1000))
    assert [rarely.shm_due(now) for now in (100.4, 100.6)] == [False, True]
    rarely.on_copied(now=101.0, cost=0.3)
    assert [rarely.shm_due(now) for now in (106.9, 107.1)] == [False, True]
    rarely.on_started(now=107.0, blocked=0.1)
    assert not rarely.shm_due(107.1)


def test_the_first_chosen_snapshot_comes_soon_so_that_its_cost_is_known():
    auto = schedule(AUTO)
    assert [auto.due_after_step(1, now) for now in (104.9, 105.1)] == [False, True]


def test_a_cheap_snapshot_is_taken_more_often_than_an_expensive_one():
    cheap, expensive = saved(105.0, blocked=0.001), saved(105.0, blocked=0.5)
    assert cheap.due_after_step(2, now=115.0)
    assert not expensive.due_after_step(2, now=155.0)  # a hundredth of the time, and no more
    assert expensive.due_after_step(2, now=300.0)


def test_a_job_that_fails_often_is_saved_more_often():
    steady, shaky = schedule(AUTO), schedule(AUTO, failures=FailureStats(40, 600.0))
    for each in (steady, shaky):
        each.on_started(105.0, 0.02)
        each.overhead.finished(0.0)
    assert [each.due_after_step(2, now=110.0) for each in (steady, shaky)] == [False, True]


def test_the_end_of_an_epoch_is_taken_as_soon_as_the_cost_allows():
    auto = saved(105.0, blocked=0.02)
    assert [auto.due_after_epoch(0, now) for now in (106.9, 107.1)] == [False, True]
    assert not auto.due_after_step(2, now=107.1)


def test_writing_leaves_half_of_the_time_to_the_ranks():
    auto = saved(105.0, blocked=0.001, writing=30.0)
    assert [auto.due_after_step(2, now) for now in (164.9, 165.1)] == [False, True]
    assert [auto.due_after_epoch(2, now) for now in (164.9, 165.1)] == [False, True]


@pytest.mark.parametrize(("snapshot_policy", "insists"), [(AUTO, False), (SnapshotPolicy(every_seconds=1.0), True)])
def test_only_an_automatic_snapshot_is_skipped_at_the_end_of_an_epoch(snapshot_policy, insists):
    assert schedule(snapshot_policy).insists_after_epoch(0) is insists
    assert schedule(SnapshotPolicy(auto=True, every_epochs=2)).insists_after_epoch(1)


GRID = [1e-4, 1e-3, 0.02, 0.5, 2.0, 10.0]


@pytest.mark.parametrize("between_failures", [1.0, 600.0, 4 * 3600.0, 1e6])
def test_a_more_expensive_snapshot_never_comes_more_often(between_failures):
    chosen = [overhead_of(cost).interval(between_failures) for cost in GRID]
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]


@pytest.mark.parametrize("cost", GRID)
def test_more_failures_never_make_snapshots_rarer(cost):
    mean_times = [mean_time(FailureStats(n, 3600.0), 60.0) for n in range(50)]
    chosen = [overhead_of(cost).interval(each) for each in mean_times]
    assert chosen == sorted(chosen, reverse=True)


@pytest.mark.parametrize("cost", GRID)
@pytest.mark.parametrize("between_failures", [1.0, 600.0, 4 * 3600.0, 1e6])
@pytest.mark.parametrize("writing", [0.0, 3.0])
def test_the_bounds_hold(cost, between_failures, writing):
    overhead = overhead_of(cost, writing)
    chosen = overhead.interval(between_failures)
    assert cost / chosen <= snapshot_schedule.MAX_SHARE * 1.000001
    assert writing / chosen <= 0.5
    assert chosen <= max(snapshot_schedule.MAX_INTERVAL, overhead.min_interval)


def test_a_job_without_a_failure_is_trusted_more_the_longer_it_runs():
    trusted = [mean_time(FailureStats(0, ran), 0.0) for ran in (0.0, 3600.0, 360000.0)]
    assert trusted == [14400.0, 18000.0, 374400.0]
    assert mean_time(FailureStats(9, 0.0), 0.0) == 1440.0


def test_the_cost_is_the_wait_and_what_steps_take_longer_meanwhile():
    overhead = SnapshotOverhead()
    for _ in range(9):
        overhead.add_step(0.1, writing=False)
    overhead.started(0.02)
    overhead.add_step(0.13, writing=True)
    overhead.add_step(0.11, writing=True)
    assert (overhead.cost, overhead.step) == (None, 0.1)
    overhead.finished(0.25)
    assert overhead.cost == pytest.approx(0.06)
    assert overhead.writing == 0.25
    overhead.add_step(9.0, writing=True)  # a copy in memory is being written
    overhead.started(0.02)
    overhead.finished(0.25)
    assert overhead.cost == pytest.approx(0.04)


@pytest.mark.parametrize(("step", "cost"), [(0.01, 0.02), (60.0, 0.32)], ids=["faster by chance", "with an evaluation"])
def test_a_snapshot_costs_at_least_its_wait_and_at_most_the_time_of_its_writing_more(step, cost):
    overhead = SnapshotOverhead()
    overhead.add_step(0.1, writing=False)
    overhead.started(0.02)
    overhead.add_step(step, writing=True)
    overhead.finished(0.3)
    assert overhead.cost == pytest.approx(cost)


def test_a_first_snapshot_into_fresh_memory_is_soon_forgotten():
    overhead = SnapshotOverhead()
    for blocked in (0.9, 0.02, 0.02):
        overhead.started(blocked)
        overhead.finished(0.1)
    assert overhead.cost == 0.02


def test_the_page_shows_how_often_and_why():
    auto = schedule(SnapshotPolicy(auto=True, every_epochs=2))
    assert auto.describe(100.0) == "every 2 epochs or after 5 s (auto: to measure the cost of one)"
    auto.overhead.add_step(0.5, writing=False)
    auto.on_started(105.0, 0.02)
    auto.overhead.finished(0.1)
    when = "every 2 epochs or every 48 steps or at the end of an epoch"
    assert auto.describe(100.0) == f"{when} (auto: 20 ms each, one failure in 4.0 h)"
    assert schedule(SnapshotPolicy(every_steps=20)).describe(100.0) == "every 20 steps"
