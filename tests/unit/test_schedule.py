import json

import pytest

from rekindle.contract.spec import Cadence
from rekindle.training.schedule import SnapshotSchedule, chosen_cadence


def schedule(cadence, *, adapts=False):
    return SnapshotSchedule(cadence, adapts, last_at=100.0)


def test_what_the_submitter_says_goes_before_what_the_script_says():
    job = json.dumps({"every_steps": 5, "every_seconds": None, "every_epochs": None, "keep": 2})
    assert chosen_cadence(Cadence(every_steps=9), job) == (Cadence(every_steps=5, keep=2), False)


def test_the_script_decides_where_the_submitter_says_nothing():
    job = json.dumps({"every_steps": None, "every_seconds": None, "every_epochs": None, "keep": 7})
    assert chosen_cadence(Cadence(every_steps=9), job) == (Cadence(every_steps=9), False)
    assert chosen_cadence(Cadence(every_steps=9), None) == (Cadence(every_steps=9), False)


def test_the_default_keeps_as_many_as_the_submitter_wants():
    job = json.dumps({"every_steps": None, "every_seconds": None, "every_epochs": None, "keep": 7})
    assert chosen_cadence(Cadence(), job) == (Cadence(every_seconds=10.0, every_epochs=1, keep=7), True)


def test_snapshots_by_step_fall_on_the_same_steps_in_every_attempt():
    every_four = schedule(Cadence(every_steps=4))
    assert [step for step in range(1, 13) if every_four.due_after_step(step, now=1e9)] == [4, 8, 12]
    assert not every_four.due_after_epoch(3, now=1e9)


def test_snapshots_by_epoch_follow_every_second_epoch():
    every_two = schedule(Cadence(every_epochs=2))
    assert [epoch for epoch in range(6) if every_two.due_after_epoch(epoch, now=1e9)] == [1, 3, 5]


def test_the_clock_starts_anew_after_each_try():
    by_time = schedule(Cadence(every_seconds=10.0))
    assert not by_time.due_after_step(1, now=109.9)
    assert by_time.due_after_step(1, now=110.0)
    by_time.tried(now=112.0, cost=2.0)
    assert not by_time.due_after_step(2, now=121.9)
    assert by_time.due_after_epoch(0, now=122.0)


@pytest.mark.parametrize(("adapts", "due"), [(True, False), (False, True)])
def test_slow_saving_makes_only_the_default_cadence_rarer(adapts, due):
    by_time = schedule(Cadence(every_seconds=10.0), adapts=adapts)
    by_time.tried(now=100.0, cost=3.0)
    assert by_time.due_after_step(1, now=115.0) is due
    assert by_time.due_after_step(1, now=160.0)


def test_a_snapshot_that_is_owed_follows_at_the_next_step():
    every_four = schedule(Cadence(every_steps=4))
    every_four.owed = True
    assert every_four.due_after_step(5, now=101.0)
    every_four.tried(now=101.0, cost=0.1)
    assert not every_four.due_after_step(6, now=102.0)


def test_copies_in_memory_take_a_twentieth_of_the_time_at_most():
    rarely = schedule(Cadence(every_steps=1000))
    assert [rarely.copy_due(now) for now in (100.4, 100.6)] == [False, True]
    rarely.copied(now=101.0, cost=0.3)
    assert [rarely.copy_due(now) for now in (106.9, 107.1)] == [False, True]
    rarely.tried(now=107.0, cost=0.1)
    assert not rarely.copy_due(107.1)


def test_writing_leaves_half_of_the_time_to_the_ranks_unless_the_cadence_is_given():
    by_time = schedule(Cadence(every_seconds=10.0), adapts=True)
    by_time.written(30.0)
    assert [by_time.due_after_step(1, now) for now in (159.0, 161.0)] == [False, True]
    given = schedule(Cadence(every_seconds=10.0))
    given.written(30.0)
    assert given.due_after_step(1, now=111.0)
