from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch

from rekindle.training.snapshots import staging
from rekindle.training.snapshots.staging import Staging


def many_tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    large = torch.randn(3 * staging._CHUNK // 4 + 5)  # three chunks and a bit
    image = torch.randn(4, 8, 64, 64).to(memory_format=torch.channels_last)
    small = {f"small {number}": torch.randn(number + 1, 3) for number in range(50)}
    return {"large": large, "image": image, "turned": large[:64].view(8, 8).T, "empty": torch.empty(0), **small}


@pytest.mark.parametrize("count", [1, 64])
def test_every_tensor_is_copied_whole_by_any_number_of_threads_and_stays_as_it_was_while_the_state_changes(count):
    state = many_tensors()
    before = {name: tensor.clone() for name, tensor in state.items()}
    threads = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        copied = Staging().copy(state)
    finally:
        torch.set_num_threads(threads)
    for tensor in state.values():
        tensor.zero_()
    for name, tensor in before.items():
        assert torch.equal(copied[name], tensor), name
        assert copied[name].stride() == state[name].stride(), name


def test_the_next_copy_fills_the_same_memory():
    staged, state = Staging(), many_tensors()
    first = {name: tensor.data_ptr() for name, tensor in staged.copy(state).items()}
    state["small 1"] = torch.randn(7)  # this one has grown
    second = staged.copy(state)
    assert {name for name in first if second[name].data_ptr() != first[name]} == {"small 1"}
    assert torch.equal(second["small 1"], state["small 1"])


def test_what_is_one_tensor_stays_one_and_what_is_part_of_another_does_not():
    tied = torch.randn(16)
    copied = Staging().copy({"a": tied, "b": [tied], "part": tied[:8]})
    assert copied["a"] is copied["b"][0]
    assert torch.equal(copied["part"], tied[:8])


def test_weights_that_are_trained_are_copied_without_their_history():
    weight = torch.nn.Parameter(torch.randn(4))
    assert not Staging().copy({"weight": weight, "result": weight * 2})["result"].requires_grad


def test_a_counter_is_copied_and_not_added_to_itself():
    state = {"milestones": Counter({3: 1, 5: 2}), "weights": OrderedDict(b=torch.ones(1), a=torch.zeros(1))}
    copied = Staging().copy(Staging().copy(state))
    assert (type(copied["milestones"]), copied["milestones"]) == (Counter, state["milestones"])
    assert (type(copied["weights"]), list(copied["weights"])) == (OrderedDict, ["b", "a"])


def test_numbers_of_numpy_become_pythons_where_that_is_exact_and_else_stay_to_be_refused():
    for value in (np.float64(0.1), np.int64(2**62), np.bool_(True), np.str_("text")):
        [[key, [item]]] = Staging().copy({value: [value]}).items()
        assert key == item == value
        assert type(key) is type(item) is type(value.item())
    for value in (np.float32(0.1), np.timedelta64(5, "ns")):
        assert type(Staging().copy({"value": value})["value"]) is type(value)
