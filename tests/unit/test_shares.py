from hypothesis import given
from hypothesis import strategies as st

from job_examples import gpu_machine
from rekindle_service.machine.slots import free_shares, fullest_first, slots_with_room


def names(slots):
    return [slot.name for slot in slots]


def test_what_jobs_hold_is_not_free_and_nothing_of_an_unusable_slot_is():
    machine = gpu_machine(4)
    free = free_shares(machine, [(["cuda:0"], 1.0), (["cuda:1", "cuda:2"], 0.25)], {"cuda:3": "Xid 79"})
    assert free == {"cuda:0": 0.0, "cuda:1": 0.75, "cuda:2": 0.75, "cuda:3": 0.0}
    assert names(slots_with_room(machine.slots, free, 0.5)) == ["cuda:1", "cuda:2"]
    assert names(slots_with_room(machine.slots, free, 1.0)) == []
    assert free_shares(gpu_machine(1), [(["cuda:7"], 1.0)]) == {"cuda:0": 1.0}, "a slot that no longer exists"


def test_jobs_that_share_fill_a_gpu_before_they_begin_the_next():
    machine = gpu_machine(3)
    free = free_shares(machine, [(["cuda:1"], 0.5), (["cuda:2"], 0.25)])
    assert names(fullest_first(machine.slots, free)) == ["cuda:1", "cuda:2", "cuda:0"]


@given(st.integers(1, 40))
def test_as_many_equal_shares_as_there_are_fill_a_gpu(parts):
    machine = gpu_machine(1)
    share = 1 / parts
    for held in range(parts + 1):
        free = free_shares(machine, [(["cuda:0"], share)] * held)
        assert bool(slots_with_room(machine.slots, free, share)) is (held < parts)
