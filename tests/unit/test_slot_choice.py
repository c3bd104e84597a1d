"""Which GPUs of recorded machines a job gets."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_examples import cpu_machine
from recorded_machines import CUBE_MESH, PCIE, SWITCHED
from rekindle.contract.job_options import LinkRule
from rekindle_service.machine.slots import TOPOLOGY_LEVELS, Machine, choose_slots

MACHINES = {"pcie": PCIE, "cube mesh": CUBE_MESH, "switched": SWITCHED}


def chosen(machine, count, taken=(), rule=LinkRule.PREFERRED):
    free = [slot for slot in machine.slots if slot.index not in taken]
    found = choose_slots(free, count, machine.links, rule)
    return None if found is None else [slot.index for slot in found]


@pytest.mark.parametrize(
    ("machine", "taken", "count", "gpus"),
    [
        (PCIE, (), 2, [0, 1]),
        (PCIE, (0,), 1, [1]),  # a pair is broken already: the others stay whole
        (PCIE, (0,), 2, [2, 3]),
        (PCIE, (0, 1), 1, [2]),
        (PCIE, (0, 4), 1, [1]),
        (PCIE, (0, 4, 5), 1, [1]),
        (PCIE, (0, 1), 2, [2, 3]),  # and the other quad stays whole
        (PCIE, (), 4, [0, 1, 2, 3]),
        (PCIE, (0,), 4, [4, 5, 6, 7]),
        (PCIE, (0, 1, 4, 5), 3, [2, 3, 6]),
        (PCIE, (0, 2, 4), 1, [1]),
        (CUBE_MESH, (0,), 4, [4, 5, 6, 7]),
        (CUBE_MESH, (0, 1, 2), 1, [3]),  # and the other quad stays whole
        (CUBE_MESH, (1, 2, 3), 2, [0, 4]),  # three are left in any case, linked with each other
        (SWITCHED, (0, 1), 4, [4, 5, 6, 7]),  # near one processor
        (SWITCHED, (0,), 2, [1, 2]),
        (Machine(cpu_machine(4).slots[::-1], ()), (), 2, [0, 1]),
    ],
)
def test_the_best_linked_group_is_chosen_that_leaves_the_best_linked_rest(machine, taken, count, gpus):
    assert chosen(machine, count, taken) == gpus


@given(
    name=st.sampled_from(sorted(MACHINES)), taken=st.sets(st.integers(0, 7)), count=st.integers(1, 8),
    rule=st.sampled_from(list(LinkRule)),
)  # fmt: skip
def test_no_other_group_of_free_gpus_is_linked_better(name, taken, count, rule):
    machine = MACHINES[name]
    kinds = {frozenset((link.first, link.second)): link.kind for link in machine.links}
    free = [slot for slot in machine.slots if slot.index not in taken]

    def levels(group):
        return [kinds[frozenset((one.name, other.name))] for one, other in itertools.combinations(group, 2)]

    def allowed(group):
        linked = [kind == "nvlink" for kind in levels(group)]
        return {LinkRule.PREFERRED: True, LinkRule.REQUIRED: all(linked), LinkRule.AVOIDED: not any(linked)}[rule]

    def cost(group):
        return sum(map(TOPOLOGY_LEVELS.index, levels(group)))

    found = choose_slots(free, count, machine.links, rule)
    groups = [group for group in itertools.combinations(free, count) if allowed(group)]
    assert (found is None) is (not groups)
    if found is not None:
        assert set(found) <= set(free)
        assert len(set(found)) == count
        assert allowed(found)
        assert rule is not LinkRule.PREFERRED or cost(found) == min(map(cost, groups))
