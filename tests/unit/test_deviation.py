"""Ranks whose collectives deviate: from the majority, else from what the rank itself has done there before."""

import json

import pytest

from rekindle.contract.rank_traces import Collective, parse_history
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


def deviating(*histories):
    found = find_deviation(dict(enumerate(histories)))
    return None if found is None else found.ranks


NEW = ("0", "all_gather", "[[1]] Long")


@pytest.mark.parametrize(
    ("ranks", "histories"),
    [
        pytest.param(None, [EPOCH, EPOCH], id="the same"),
        pytest.param(None, [(), EPOCH], id="no history"),
        pytest.param([1], [(*EPOCH, *STEP), (*EPOCH, ("0", "broadcast", "[[3]] Float"))], id="an unusual shape"),
        pytest.param([1], [(*EPOCH, *STEP), (*EPOCH, ("0", "all_reduce", "[[1000]] Float"))], id="a new shape"),
        pytest.param([1], [(*EPOCH, *STEP), (*EPOCH, ("0", "all_reduce", "[[30]] Double"))], id="a new type"),
        pytest.param([1], [(*EPOCH, *STEP), (*EPOCH, ("1", "all_reduce", "[[30]] Float"))], id="another group"),
        pytest.param([0], [(*EPOCH, *STEP, *STEP[:1] * 3), (*EPOCH, *STEP * 2)], id="evaluates alone"),
        pytest.param([1], [(*EPOCH, NEW), (*EPOCH, *STEP), (*EPOCH, NEW)], id="the majority does something new"),
    ],
)
def test_the_rank_deviates_that_does_what_it_has_not_done_before_or_what_the_majority_does_not(ranks, histories):
    assert deviating(*(history(*each) for each in histories)) == ranks


def test_what_the_recorder_has_forgotten_is_no_deviation():
    whole = history(*EPOCH, *STEP)
    assert deviating(whole, whole[7:]) is None


def test_a_rank_that_has_enqueued_less_lags():
    found = find_deviation({0: history(*STEP), 1: history(*STEP), 2: history(*STEP[:1])})
    assert (found.ranks, found.made) == ([2], None)
    assert found.expected.operation == "all_reduce"


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_of_two_ranks_the_one_deviates_that_leaves_its_loop_early(epochs):
    before = EPOCH * (epochs - 1) + STEP * 5
    assert deviating(history(*before, *STEP), history(*before, *EPOCH_END)) == [1]
    assert deviating(history(*before, *EPOCH_END), history(*before, *STEP)) == [0]


def test_a_group_that_another_thread_uses_at_any_time_hides_no_deviation():
    flags, step, part = (
        ("1", "all_reduce", "[[5]] Int"),
        ("0", "all_reduce", "[[2]] Float"),
        ("2", "broadcast", "[[1]]"),
    )
    regular = [flags, step] * 8
    usual = history(*regular, flags, part, step)
    assert deviating(usual, history(*regular[:6], part, *regular[6:], flags, flags)) == [1]
    assert deviating(usual, history(*regular, flags, part, flags)) == [1]


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
