"""Whole workloads in virtual time, decided by the scheduler's own code: what must hold after every single decision."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job_examples import cpu_machine, gpu_machine
from rekindle_service.config.settings import Quota
from rekindle_service.jobs.quotas import Quotas
from rekindle_service.scheduler.allocation import Allocation, AllocationState, Holder, reserve
from rekindle_service.scheduler.durations import UNKNOWN
from rekindle_service.store.tables import Job
from simulation.virtual_time import Simulation, held_by_owner, reference
from simulation.workload import TraceJob, lab_trace, read_swf


def no_slot_twice(_: Sequence[Job], situation: AllocationState, made: Allocation) -> None:
    given = [name for job in situation.holding for name in job.devices]
    given += [name for _, names in made.starts for name in names]
    assert len(given) == len(set(given)), "a slot is given twice"
    assert set(given) <= {slot.name for slot in situation.machine.slots}


Start = tuple[Job, list[str]]


def earliest(
    job: Job, situation: AllocationState, in_turn: Sequence[Start], before_turn: Sequence[Start] = ()
) -> float:
    """When it can start, if jobs in their turn run as long as expected, and those before their turn to the limit."""
    left = [(each, each.devices, situation.remaining(each)) for each in situation.holding]
    left += [(each, names, situation.expected(each)) for each, names in in_turn]
    left += [(each, names, situation.max_seconds(each)) for each, names in before_turn]
    holders = [Holder(each, names, 1.0, UNKNOWN if seconds is None else seconds) for each, names, seconds in left]
    held = {name for _, names, _ in left for name in names}
    free = {slot.name: float(slot.name not in held) for slot in situation.machine.slots}
    return reserve(job, situation.machine.slots, free, holders, ()).at


def first_is_never_delayed(queue: Sequence[Job], situation: AllocationState, made: Allocation) -> None:
    """By those that start before their turn: without them it would not start earlier."""
    if not made.reservations:
        return
    first = made.reservations[0].job
    place = {job.id: index for index, job in enumerate(queue)}
    in_turn = [each for each in made.starts if place[each[0].id] < place[first.id]]
    before_turn = [each for each in made.starts if place[each[0].id] > place[first.id]]
    assert earliest(first, situation, in_turn, before_turn) <= earliest(first, situation, in_turn)


def no_slot_is_idle_that_the_next_could_have(_: Sequence[Job], situation: AllocationState, made: Allocation) -> None:
    held = len([name for job in situation.holding for name in job.devices])
    held += len([name for _, names in made.starts for name in names])
    free = len(situation.machine.slots) - held
    for each in made.reservations:
        assert each.job.spec.min_devices > free


def everything(queue: Sequence[Job], situation: AllocationState, made: Allocation) -> None:
    for check in (no_slot_twice, first_is_never_delayed, no_slot_is_idle_that_the_next_could_have):
        check(queue, situation, made)


jobs = st.tuples(
    st.sampled_from(["ann", "bob", "cem", "dee"]),
    st.sampled_from(["a", "b"]),
    st.integers(0, 400),
    st.integers(1, 2000),
    st.integers(1, 8),
    st.sampled_from([None, 1.0, 1.5, 10.0]),
    st.sampled_from([0, 0, 0, 5]),
)


def trace_of(drawn: Sequence[tuple]) -> list[TraceJob]:
    trace, at = [], 0.0
    for number, (owner, name, gap, seconds, slots, factor, priority) in enumerate(drawn, start=1):
        at += gap
        limit = None if factor is None else seconds * factor
        trace.append(TraceJob(number, owner, name, at, float(seconds), slots, limit, priority))
    return trace


@settings(max_examples=40)
@given(st.lists(jobs, min_size=1, max_size=25))
def test_whatever_is_submitted_no_slot_is_given_twice_the_first_is_never_delayed_and_all_jobs_end(drawn):
    trace = trace_of(drawn)
    result = Simulation(trace, cpu_machine(8), check=everything).run()
    assert sorted(each.job.number for each in result.outcomes) == [job.number for job in trace]
    assert all(each.ended >= each.started + each.job.seconds - 1e-6 for each in result.outcomes)


@settings(max_examples=25)
@given(st.lists(jobs, min_size=1, max_size=25), st.integers(1, 8))
def test_no_owner_ever_holds_more_than_the_quota(drawn, limit):
    trace = [job for job in trace_of(drawn) if job.slots <= limit]

    def within(_: Sequence[Job], situation: AllocationState, made: Allocation) -> None:
        started = held_by_owner([job.model_copy(update={"devices": names}) for job, names in made.starts])
        held = held_by_owner(situation.holding)
        assert all(started.get(owner, 0) + held.get(owner, 0) <= limit for owner in {**started, **held})

    quotas = Quotas({"*": Quota(slots=limit, queued=None)})
    result = Simulation(trace, cpu_machine(8), quotas=quotas, check=within).run()
    assert len(result.outcomes) == len(trace)


def test_a_job_starts_no_later_than_it_was_first_reserved_for_where_all_have_time_limits():
    trace = [
        TraceJob(
            job.number, "ann", f"{chr(97 + job.number % 26)}", job.submitted, job.seconds, job.slots, job.seconds * 2
        )
        for job in lab_trace(3, 120)
    ]
    reserved: dict[str, float] = {}

    def note(_: Sequence[Job], situation: AllocationState, made: Allocation) -> None:
        for each in made.reservations[:1]:
            by_limits = replace(situation, remaining=left_of_limit)
            reserved.setdefault(each.job.id, simulation.now + earliest(each.job, by_limits, (), made.starts))

    def left_of_limit(job: Job) -> float:
        return (job.allocated_at or 0) + (job.spec.time_limit or 0) - simulation.now

    simulation = Simulation(trace, gpu_machine(8), preemption="off", check=note)
    result = simulation.run()
    assert len(reserved) > 10
    late = [
        each for each in result.outcomes if each.started > reserved.get(f"trace{each.job.number:05d}", math.inf) + 1
    ]
    assert late == []


def test_a_big_job_starts_although_small_ones_keep_coming():
    big = TraceJob(1, "ann", "big", 100.0, 600.0, 8, 700.0)
    small = [TraceJob(n + 2, "bob", "small", n * 60.0, 590.0, 1, 600.0) for n in range(300)]
    trace = sorted([big, *small], key=lambda job: job.submitted)
    result = Simulation(trace, cpu_machine(8), check=everything).run()
    assert max(result.waits(lambda job: job.owner == "ann")) <= 600
    assert len(result.outcomes) == len(trace)


def test_small_jobs_use_what_a_big_one_leaves_idle():
    running = TraceJob(1, "ann", "running", 0.0, 3600.0, 1, 3600.0)
    big = TraceJob(2, "ann", "big", 1.0, 600.0, 8, 700.0)
    small = [TraceJob(n + 3, "ann", "small", 2.0, 300.0, 1, 600.0) for n in range(14)]
    result = Simulation([running, big, *small], cpu_machine(8), check=everything).run()
    assert max(result.waits(lambda job: job.name == "small")) < 700
    assert result.waits(lambda job: job.name == "big") == [3599.0]


def test_owners_get_equal_parts_although_one_submits_ten_times_as_much():
    greedy = [TraceJob(n + 1, "ann", "x", 0.0, 600.0, 1, 600.0) for n in range(100)]
    modest = [TraceJob(n + 101, "bob", "x", 1.0, 600.0, 1, 600.0) for n in range(10)]
    result = Simulation([*greedy, *modest], cpu_machine(2)).run()
    assert max(result.waits(lambda job: job.owner == "bob")) <= 21 * 600 / 2


def test_an_urgent_job_starts_within_seconds_and_what_it_stopped_loses_nothing():
    trace = [TraceJob(n + 1, "ann", "long", 0.0, 7200.0, 2, None) for n in range(4)]
    trace.append(TraceJob(5, "bob", "urgent", 1800.0, 600.0, 2, None, 10))
    result = Simulation(trace, cpu_machine(8), check=no_slot_twice).run()
    (urgent,) = [each for each in result.outcomes if each.job.name == "urgent"]
    assert urgent.waited <= 10
    assert sum(each.interruptions for each in result.outcomes) == 1
    (stopped,) = [each for each in result.outcomes if each.interruptions]
    assert stopped.ended <= 7200 + 600 + 60


def test_a_day_of_a_lab_is_better_off_than_first_come_first_served():
    trace = lab_trace(1, 150)
    mine = Simulation(trace, gpu_machine(8), check=everything).run()
    fifo, easy = reference(trace, 8, backfill=False), reference(trace, 8, backfill=True)
    assert len(mine.outcomes) == len(fifo.outcomes) == len(easy.outcomes) == 150
    for figure in ("mean wait", "p95"):
        assert mine.row()[figure] < fifo.row()[figure]


def test_a_log_of_the_archive_is_read_with_the_jobs_that_ran_and_fit():
    log = [
        "; UnixStartTime: 0",
        "1 0 5 100 4 -1 -1 4 3600 -1 1 7 1 -1 1 -1 -1 -1",
        "2 10 5 100 -1 -1 -1 2 -1 -1 1 8 1 -1 1 -1 -1 -1",
        "3 20 5 -1 4 -1 -1 4 3600 -1 5 7 1 -1 1 -1 -1 -1",
        "4 30 5 100 64 -1 -1 64 3600 -1 1 7 1 -1 1 -1 -1 -1",
    ]
    assert read_swf(log, 8) == [
        TraceJob(1, "user7", "log", 0.0, 100.0, 4, 3600.0),
        TraceJob(2, "user8", "log", 10.0, 100.0, 2, None),
    ]
    with pytest.raises(ValueError, match="has 2 fields, not 18"):
        read_swf(["1 2"], 8)
