"""Jobs that are stopped for others, that shrink or grow: no slot is taken in vain, and none is promised twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_examples import a_job, cpu_machine, gpu_machine
from rekindle.contract.job_options import LinkRule
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.config.settings import Quota
from rekindle_service.jobs.quotas import Quotas
from rekindle_service.machine.slots import Machine
from rekindle_service.scheduler.displacer import DisplacementRules, displacements

NOW, LONG_AGO = 10_000.0, 1_000.0
RULES = DisplacementRules(min_run=60.0)


def runs(*slots, least=None, most=None, since=LONG_AGO, device="cpu", saved=NOW - 1, **columns):
    """A running job on these slots of its kind, elastic where ``most`` is given."""
    step = None if saved is None else 1
    defaults = {"state": JobState.RUNNING, "can_resize": True, "snapshot_at": saved, "snapshot_step": step}
    ranks = {"min_ranks": least or len(slots), "max_ranks": most or len(slots)}
    devices = [f"{device}:{slot}" for slot in slots]
    return a_job(devices=devices, devices_since=since, device=device, **ranks, **{**defaults, **columns})


def waits(ranks, priority=0, **columns):
    return a_job(min_ranks=ranks, max_ranks=ranks, priority=priority, **columns)


def plan(holding, waiting, slots=4, rules=RULES, **more):
    """Next slots by job id; None for a job that returns to the queue."""
    machine = slots if isinstance(slots, Machine) else cpu_machine(slots)
    made = displacements(holding, waiting, machine, NOW, rules, **more)
    assert len({each.job.id for each in made}) == len(made)
    return {each.job.id: each.wanted for each in made}


def test_a_job_of_lower_priority_is_stopped_for_one_that_waits_and_the_reason_names_it():
    low, head = runs(0, 1), waits(2, priority=5)
    (made,) = displacements([low], [head], cpu_machine(2), NOW, RULES)
    assert (made.job, made.kind, made.by, made.wanted) == (low, "preempt", head.id, None)
    assert made.reason == f'Job "{head.name}" (#{head.number}) of local, of priority 5, gets its slots.'


@pytest.mark.parametrize(
    ("running", "head"),
    [
        (runs(0, 1, priority=5), waits(2, priority=5)),
        (runs(0, 1, priority=6), waits(2, priority=5)),
        (runs(0, 1, since=NOW - 59), waits(2, priority=5)),
        (runs(0, 1), waits(3, priority=5)),
        (runs(0, 1, intent=JobIntent.DRAIN), waits(2, priority=5)),
        (runs(0, 1), waits(1, priority=5, device="cpu:7")),
    ],
    ids=["same priority", "higher", "just started", "would not be enough", "leaves anyway", "other slots named"],
)
def test_a_job_keeps_its_slots(running, head):
    assert plan([running], [head], slots=2) == {}


def test_without_preemption_no_job_is_stopped_and_elastic_ones_still_give_up_ranks():
    low, elastic = runs(0, 1), runs(2, 3, least=1, most=2)
    off = DisplacementRules(preemption="off")
    assert plan([low], [waits(2, 5)], slots=2, rules=off) == {}
    assert plan([low, elastic], [waits(1, 5)], rules=off) == {elastic.id: ["cpu:2"]}


@pytest.mark.parametrize(
    ("preemption", "stopped"), [("off", set()), ("own", {"ann"}), ("all", {"ann", "bob"})], ids=["off", "own", "all"]
)
@pytest.mark.parametrize("owners", [("ann", "bob"), ("bob", "ann")], ids=["own job first", "other job first"])
def test_a_job_stops_jobs_of_other_owners_only_where_the_setting_says_so(preemption, stopped, owners):
    rules = DisplacementRules(preemption=preemption)
    running = [runs(slot, owner=owner, saved=NOW - 9) for slot, owner in enumerate(owners)]
    for owner in owners:
        alone = [job for job in running if job.owner == owner]
        expected = {job.id: None for job in alone if owner in stopped}
        machine = Machine(tuple(slot for slot in cpu_machine(2).slots if slot.name in alone[0].devices))
        assert plan(alone, [waits(1, 5, owner="ann")], slots=machine, rules=rules) == expected
    both = plan(running, [waits(2, 5, owner="ann")], slots=2, rules=rules)
    assert both == ({job.id: None for job in running} if preemption == "all" else {}), "nothing is stopped in vain"
    one = plan(running, [waits(1, 5, owner="ann")], slots=2, rules=rules)
    assert len(one) == bool(stopped)
    assert {job.owner for job in running if job.id in one} <= stopped


def test_a_job_that_must_not_stop_another_owners_job_keeps_its_turn_before_later_ones():
    mine, theirs = runs(0, owner="ann"), runs(1, owner="bob")
    first, second = waits(2, 1000, owner="ann"), waits(1, 5, owner="bob")
    assert plan([mine, theirs], [first, second], slots=2) == {}, "the first would get the slot that the second frees"


def test_an_elastic_job_gives_ranks_to_another_owner_once_it_has_saved_something():
    saved, unsaved = runs(0, 1, least=1, most=2, owner="bob"), runs(0, 1, least=1, most=2, owner="bob", saved=None)
    head = waits(1, 5, owner="ann")
    assert plan([saved], [head], slots=2) == {saved.id: ["cpu:0"]}
    assert plan([unsaved], [head], slots=2) == {}
    everybody = DisplacementRules(preemption="all")
    assert plan([unsaved], [head], slots=2, rules=everybody) == {unsaved.id: ["cpu:0"]}


def test_as_few_jobs_as_possible_are_stopped_first_what_loses_least_then_the_lowest_then_the_youngest():
    small, big = [runs(0), runs(1)], runs(2, 3, saved=NOW - 3000)
    assert plan([*small, big], [waits(2, 5)]) == {big.id: None}
    saved, unsaved, never = runs(0, priority=3), runs(1, saved=NOW - 600), runs(2, saved=None)
    assert plan([saved, unsaved, never], [waits(1, 5)], slots=3) == {saved.id: None}
    assert plan([unsaved, never], [waits(1, 5)], slots=Machine(cpu_machine(3).slots[1:])) == {unsaved.id: None}
    high, low = runs(0, priority=3), runs(1, priority=2, saved=NOW - 9)
    assert plan([high, low], [waits(1, 5)], slots=2) == {low.id: None}
    old, young = runs(0), runs(1, saved=NOW - 9)
    assert plan([old, young], [waits(1, 5)], slots=2) == {young.id: None}


def test_slots_that_are_on_their_way_are_waited_for():
    leaving = runs(0, displaced={"kind": "preempt", "reason": "…", "by": None, "at": 1.0})
    shrinking = runs(1, 2, least=1, most=2, displaced={"kind": "resize"}, wanted_devices=["cpu:1"])
    drained = runs(3, intent=JobIntent.DRAIN)
    other = runs(4)
    assert plan([leaving, shrinking, drained, other], [waits(3, 5)], slots=5) == {}
    assert plan([leaving, shrinking, drained, other], [waits(3, 5), waits(1, 4)], slots=5) == {other.id: None}


def test_an_elastic_job_gives_up_as_many_ranks_as_are_needed_instead_of_being_stopped():
    elastic, fixed = runs(0, 1, 2, least=1, most=4), runs(3)
    assert plan([elastic, fixed], [waits(1, 5)]) == {elastic.id: ["cpu:0", "cpu:1"]}
    assert plan([elastic, fixed], [waits(2, 5)]) == {elastic.id: ["cpu:0"]}
    assert plan([elastic, fixed], [waits(3, 5)]) == {fixed.id: None, elastic.id: ["cpu:0"]}
    assert plan([elastic, fixed], [waits(4, 5)]) == {elastic.id: None, fixed.id: None}


def test_ranks_above_the_least_number_are_for_any_job_of_the_same_priority_but_not_for_a_lower_one():
    elastic = runs(0, 1, 2, 3, least=1, most=4)
    made = displacements([elastic], [waits(2)], cpu_machine(4), NOW, RULES)
    assert [each.wanted for each in made] == [["cpu:0", "cpu:1"]]
    assert made[0].reason.endswith("gets 2 slots: 2 ranks instead of 4.")
    assert plan([elastic], [waits(2, priority=-1)]) == {}
    never_saved = runs(0, 1, 2, 3, least=1, most=4, saved=None)
    assert plan([never_saved], [waits(2)]) == {}, "it would begin again"
    assert plan([never_saved], [waits(2, priority=1)]) == {never_saved.id: ["cpu:0", "cpu:1"]}
    assert plan([elastic], [waits(4)]) == {}, "below its least number, only a higher priority stops it"


@pytest.mark.parametrize("columns", [{"resizable": False}, {"can_resize": False}], ids=["no-resize", "old keeper"])
def test_a_job_that_cannot_be_resized_neither_shrinks_nor_grows(columns):
    job = runs(0, 1, least=1, most=4, **columns)
    assert plan([job], [waits(3)]) == {}
    assert plan([job], []) == {}


def test_a_rank_leaves_with_all_its_devices():
    job = runs(0, 1, 2, 3, least=1, most=2, device="cuda", devices_per_rank=2)
    head = waits(1, 5, device="cuda")
    assert plan([job], [head], slots=gpu_machine(4)) == {job.id: ["cuda:0", "cuda:1"]}
    named = waits(1, 5, device="cuda:1")
    assert plan([job], [named], slots=gpu_machine(4)) == {job.id: ["cuda:2", "cuda:3"]}


def test_gpus_are_freed_only_where_their_links_are_what_the_job_requires():
    machine = gpu_machine(4, {(0, 1): "nvlink", (2, 3): "nvlink"})
    first, second, pair = runs(0, device="cuda"), runs(2, device="cuda"), runs(1, 3, device="cuda", priority=9)
    head = waits(2, 5, device="cuda", links=LinkRule.REQUIRED)
    assert plan([first, second, pair], [head], slots=machine) == {}
    third, fourth = runs(1, device="cuda", priority=9), runs(3, device="cuda")
    assert plan([first, third, second, fourth], [head], slots=machine) == {second.id: None, fourth.id: None}


def test_a_free_slot_is_given_to_the_smallest_running_job():
    small, big = runs(0, least=1, most=4), runs(1, 2, least=1, most=4)
    assert plan([small, big], [], slots=5) == {small.id: ["cpu:0", "cpu:3", "cpu:4"]}
    grown = {small.id: ["cpu:0", "cpu:3", "cpu:4", "cpu:6"], big.id: ["cpu:1", "cpu:2", "cpu:5"]}
    assert plan([small, big], [], slots=7) == grown


def test_nothing_grows_while_a_job_waits_for_such_slots_or_before_they_have_been_free_for_a_while():
    job, gpus = runs(0, least=1, most=4), waits(2, device="cuda")
    assert plan([job], [waits(9)]) == {}
    assert plan([job], [gpus]) == {job.id: ["cpu:0", "cpu:1", "cpu:2", "cpu:3"]}
    assert plan([job], [], free_since={"cpu:1": NOW - 9, "cpu:2": NOW - 1}) == {job.id: ["cpu:0", "cpu:1"]}
    assert plan([job], [], unusable={"cpu:1", "cpu:2"}) == {job.id: ["cpu:0", "cpu:3"]}
    assert plan([runs(0, least=1, most=4, since=NOW - 59)], []) == {}
    assert plan([runs(0, least=1, most=4, state=JobState.RECOVERING)], []) == {}
    assert plan([runs(0, least=1, most=3, displaced={"kind": "resize"}, wanted_devices=["cpu:0"])], []) == {}


def test_nothing_grows_beyond_what_its_owner_may_hold():
    mine, other = runs(0, least=1, most=4, owner="ann"), runs(1, least=1, most=2, owner="bob")
    rules = DisplacementRules(quotas=Quotas({"ann": Quota(slots=2)}))
    assert plan([mine, other], [], slots=6, rules=rules) == {mine.id: ["cpu:0", "cpu:2"], other.id: ["cpu:1", "cpu:3"]}


def test_slots_that_a_job_has_been_given_and_does_not_use_yet_are_taken_back_first():
    growing = runs(
        0, 1, 2, least=1, most=3, wanted_devices=["cpu:0", "cpu:1", "cpu:2"],
        displaced={"kind": "resize", "before": ["cpu:0"]}, priority=9,
    )  # fmt: skip
    low = runs(3)
    assert plan([growing, low], [waits(1, 5)]) == {growing.id: ["cpu:0"]}
    assert plan([growing, low], [waits(3, 5)]) == {growing.id: ["cpu:0"], low.id: None}


def test_a_job_leaves_a_device_that_failed():
    failed = {"cpu:1": "put aside by ann: it is slow"}
    fixed, elastic = runs(1), runs(0, 1, 2, least=1, most=3, since=NOW)
    assert plan([fixed], [], slots=2, failed=failed, unusable=failed) == {fixed.id: None}
    assert plan([elastic], [], slots=3, failed=failed, unusable=failed) == {elastic.id: ["cpu:0", "cpu:2"]}
    assert plan([elastic], [], slots=4, failed=failed, unusable=failed) == {elastic.id: ["cpu:0", "cpu:2", "cpu:3"]}
    many = runs(0, 1, 2, least=3, most=4)
    (made,) = displacements([many], [], cpu_machine(3), NOW, RULES, failed=failed, unusable=failed)
    assert (made.kind, made.wanted) == ("device", None)
    assert made.reason == "cpu:1 is not used any more (put aside by ann: it is slow): the job goes back to the queue."
    leaving = runs(1, displaced={"kind": "device"})
    assert plan([leaving], [], failed=failed, unusable=failed) == {}


def test_a_slot_that_failed_is_no_slot_for_a_waiting_job():
    low = runs(0)
    assert plan([low], [waits(1, 5)], slots=1, failed={"cpu:0": "…"}, unusable={"cpu:0": "…"}) == {low.id: None}
    assert plan([low], [waits(1, 5)], slots=1, unusable={"cpu:0": "in use"}) == {}


@st.composite
def machines(draw):
    """A machine, running jobs on some of its slots, and jobs that wait, in the order of the queue."""
    total, slots, holding = draw(st.integers(1, 8)), 0, []
    while slots < total and draw(st.booleans()):
        count = draw(st.integers(1, total - slots))
        least = draw(st.integers(1, count))
        most = draw(st.sampled_from([count, count + 2])) if least < count or draw(st.booleans()) else count
        since = draw(st.sampled_from([LONG_AGO, NOW - 30]))
        names = range(slots, slots + count)
        holding.append(runs(*names, priority=draw(st.integers(0, 3)), least=least, most=most, since=since))
        slots += count
    waiting = [waits(draw(st.integers(1, total)), draw(st.integers(0, 3))) for _ in range(draw(st.integers(0, 4)))]
    return total, holding, sorted(waiting, key=lambda job: (-job.priority, job.number))


@given(machines())
def test_whatever_runs_and_waits_only_lower_jobs_are_stopped_and_never_in_vain(machine):
    total, holding, waiting = machine
    made = displacements(holding, waiting, cpu_machine(total), NOW, RULES)
    free = total - sum(len(job.devices) for job in holding)
    wanted = {each.job.id: each.wanted or [] for each in made}
    after = [name for job in holding for name in wanted.get(job.id, job.devices)]
    assert len(after) == len(set(after)) <= total
    heads = {head.id: head for head in waiting}
    for each in made:
        assert NOW - each.job.devices_since >= RULES.min_run
        if each.kind == "preempt":
            assert heads[each.by].priority > each.job.priority
        elif each.by is not None:
            assert heads[each.by].priority >= each.job.priority
            assert each.job.spec.min_ranks <= len(each.wanted) < len(each.job.devices)
        else:
            assert not waiting
            assert len(each.job.devices) < len(each.wanted) <= each.job.spec.max_ranks
    served = {each.by for each in made} - {None}
    gained = sum(len(each.job.devices) - len(each.wanted or []) for each in made if each.by)
    needed = sum(heads[head].spec.min_ranks for head in served)
    assert needed <= free + gained
    for each in made:
        if each.kind == "preempt" and len(waiting) == 1:
            assert free + gained - len(each.job.devices) < needed, "no job is stopped that need not be"
