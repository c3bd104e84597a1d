"""Whose collectives part from the others': by the majority, else by what each has done in that place before."""

import json

import pytest

from rekindle.contract.debug_socket import Collective, parse_history
from rekindle.keeper.hangs.deviation import find_deviation, is_usual

STEP = (("0", "broadcast", "[[8]] Float"), ("0", "all_reduce", "[[30]] Float"))
EPOCH_END = (("0", "all_reduce", "[[3]] Float"),)
EPOCH = STEP * 10 + EPOCH_END


def history(*kinds):
    numbers: dict[str, int] = {}
    made = []
    for group, operation, shape in kinds:
        numbers[group] = numbers.get(group, 0) + 1
        made.append(Collective(group, numbers[group], operation, shape))
    return made


def blamed(*histories):
    found = find_deviation(dict(enumerate(histories)))
    return None if found is None else found.ranks


def test_ranks_that_do_the_same_do_not_deviate():
    assert blamed(history(*EPOCH), history(*EPOCH)) is None


def test_a_rank_that_has_enqueued_less_is_behind():
    found = find_deviation({0: history(*STEP), 1: history(*STEP), 2: history(*STEP[:1])})
    assert (found.ranks, found.made) == ([2], None)
    assert found.expected.operation == "all_reduce"


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_of_two_ranks_the_one_is_blamed_that_leaves_its_loop_early(epochs):
    before = EPOCH * (epochs - 1) + STEP * 5
    assert blamed(history(*before, *STEP), history(*before, *EPOCH_END)) == [1]
    assert blamed(history(*before, *EPOCH_END), history(*before, *STEP)) == [0]


@pytest.mark.parametrize(
    "odd",
    [
        ("0", "broadcast", "[[3]] Float"),
        ("0", "all_reduce", "[[1000]] Float"),
        ("0", "all_reduce", "[[30]] Double"),
        ("1", "all_reduce", "[[30]] Float"),
    ],
)
def test_of_two_ranks_the_one_is_blamed_that_calls_what_nobody_has_called(odd):
    assert blamed(history(*EPOCH, *STEP), history(*EPOCH, odd)) == [1]


def test_of_two_ranks_the_one_is_blamed_that_evaluates_alone():
    assert blamed(history(*EPOCH, *STEP, *STEP[:1] * 3), history(*EPOCH, *STEP * 2)) == [0]


def test_of_three_ranks_the_majority_is_right_even_where_it_does_something_new():
    new = ("0", "all_gather", "[[1]] Long")
    assert blamed(history(*EPOCH, new), history(*EPOCH, *STEP), history(*EPOCH, new)) == [1]


def test_what_the_recorder_has_forgotten_is_no_deviation():
    whole = history(*EPOCH, *STEP)
    assert blamed(whole, whole[7:]) is None


def test_without_histories_nobody_deviates():
    assert blamed([], history(*EPOCH)) is None


def test_a_collective_that_follows_as_ever_is_usual():
    assert is_usual(history(*EPOCH, *STEP))
    assert not is_usual(history(*EPOCH, *STEP, STEP[1]))


def test_a_history_is_read_in_order_without_messages_between_two_ranks():
    def entry(record, **more):
        return {
            "time_created_ns": record, "is_p2p": False, "profiling_name": "gloo:all_reduce", "process_group": ["0", ""],
            "collective_seq_id": record, "input_sizes": [[3, 2]], "input_dtypes": ["Float"], **more,
        }  # fmt: skip

    dump = json.dumps({"entries": [entry(2), entry(3, is_p2p=True)]}).encode()
    other = json.dumps({"entries": [entry(1)]}).encode()
    assert parse_history(dump, None, other) == history(*[("0", "all_reduce", "[[3, 2]] Float")] * 2)


@pytest.mark.parametrize("nonsense", [None, b"", b"[]", b'{"entries": 3}', b'{"entries": [{}]}', b"[" * 100_000])
def test_nonsense_is_no_history(nonsense):
    assert parse_history(nonsense) == []
