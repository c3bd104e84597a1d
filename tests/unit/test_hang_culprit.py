"""Which rank causes a hang: the strongest evidence decides."""

from dataclasses import replace
from pathlib import Path

import pytest

from rekindle.contract.rank_traces import Collective, Frame, crash_dump, crashed_stack, main_stack
from rekindle.keeper.hangs.culprit import FinishedRank, RankObservation, find_culprit, position_in_code
from rekindle.keeper.rank_processes.probe import RankSample

WAITING = [
    Frame("/lib/torch/distributed/distributed_c10d.py", 3000, "all_reduce"),
    Frame("/code/train.py", 7, "<module>"),
]
SLEEPING = [Frame("/code/train.py", 12, "load"), Frame("/code/train.py", 7, "<module>")]
LOADING = [Frame("/lib/torch/utils/data/dataloader.py", 1100, "_get_data"), Frame("/code/train.py", 5, "<module>")]


def observed(rank, frames, collectives=None, *, state="S", in_collective=False, in_dead_loop=False, **more):
    sample = RankSample(
        rank, None, None, 0, 0.0, collectives, state, in_collective=in_collective, in_dead_loop=in_dead_loop
    )
    return RankObservation(sample, frames, position_in_code(frames, Path("/code")), **more)


def silent(rank, frames=(), call=None):
    return observed(rank, list(frames), answers=False, kernel_call=call)


@pytest.mark.parametrize(
    ("observations", "culprit", "line", "description"),
    [
        ([observed(0, WAITING, 38), observed(1, SLEEPING, 37)], 1, 12, "train.py:12"),
        ([observed(0, WAITING, 3), observed(1, [], state="T"), observed(2, SLEEPING, 2)], 1, None, "SIGSTOP"),
        ([observed(0, WAITING), observed(1, WAITING), observed(2, SLEEPING)], 2, 12, "train.py:12"),
        ([observed(0, WAITING, 9), observed(1, LOADING, 8)], 1, 5, "data loader"),
        ([observed(0, WAITING, 9), observed(1, WAITING, 9)], None, None, "train.py:7"),
        ([observed(0, WAITING, 9), observed(1, WAITING, 8), observed(2, SLEEPING, 8)], 2, 12, "train.py:12"),
        ([observed(0, WAITING, 16), silent(1, SLEEPING)], 1, 12, "train.py:12"),
        ([silent(0, SLEEPING), observed(1, [], 16, in_collective=True)], 0, 12, "train.py:12"),
        ([silent(0, WAITING), silent(1, SLEEPING)], 1, 12, "train.py:12"),
        ([silent(0, call="futex_do_wait"), silent(1, call="hrtimer_nanosleep")], 1, None, "next collective"),
        ([silent(0, call=""), silent(1, call="futex_do_wait")], 0, None, "next collective"),
        ([silent(0, call="futex_do_wait"), silent(1, call="futex_do_wait")], None, None, "unknown positions"),
    ],
    ids=[
        "it has fewer collectives",
        "it is stopped, though another lags",
        "it is outside a collective",
        "it waits for its loader",
        "none: all wait, and the positions are listed",
        "of two that lag it is outside a collective",
        "it does not answer, though it has as many collectives",
        "it does not answer, while the other waits by its recorder",
        "none answers, and it is outside a collective",
        "none answers or has a stack: it sleeps, by the kernel",
        "none answers or has a stack: it runs, by the kernel",
        "none: nothing differs",
    ],
)
def test_the_rank_with_the_strongest_evidence_is_the_culprit(observations, culprit, line, description):
    found = find_culprit(observations)
    assert (found.rank, found.file, found.line) == (culprit, line and "train.py", line)
    assert description in found.description


@pytest.mark.parametrize(
    ("observations", "finished", "may_end"),
    [
        ([observed(0, WAITING, 38), observed(1, SLEEPING, 37)], [], True),
        ([observed(0, WAITING, 38), observed(1, LOADING, 37)], [], True),
        ([observed(0, WAITING, 16), silent(1)], [], True),
        ([observed(0, SLEEPING), observed(1, SLEEPING)], [], True),
        ([observed(0, WAITING), observed(1, [], state="D")], [], True),
        ([observed(0, WAITING), observed(1, [], state="t")], [], True),
        ([observed(0, WAITING), observed(1, [], state="T")], [], False),
        ([observed(0, WAITING, 38), observed(1, SLEEPING, 37, in_dead_loop=True)], [], False),
        ([observed(0, WAITING, 9), observed(1, WAITING, 9)], [], False),
        ([observed(0, WAITING, 9), observed(1, WAITING, 8)], [], False),
        ([observed(0, WAITING, 9)], [FinishedRank(1, 9)], False),
        ([observed(0, SLEEPING, 9)], [FinishedRank(1, 9)], True),
    ],
    ids=["a sleep", "a loader", "no answer", "all sleep", "input", "a debugger", "SIGSTOP", "an endless loop",
         "all wait", "waits elsewhere", "the other has left", "the other has finished earlier"],
)  # fmt: skip
def test_what_a_rank_does_may_end_unless_it_waits_for_another_or_can_do_nothing_else(observations, finished, may_end):
    assert find_culprit(observations, finished).may_end is may_end


@pytest.mark.parametrize(
    ("observations", "description"),
    [
        ([observed(0, WAITING, 31), observed(1, SLEEPING, 30)], "rank 0 waits in collective 31; rank 1 is still at {}"),
        ([observed(0, WAITING), observed(1, SLEEPING)], "rank 0 waits in a collective; rank 1 is still at {}"),
        (
            [observed(0, SLEEPING, 7), *(observed(rank, WAITING, 8) for rank in (1, 2))],
            "2 ranks wait in collective 8; rank 0 is still at {}",
        ),
        ([observed(0, SLEEPING)], "rank 0 is still at {}"),
        (
            [silent(0, call=""), silent(1, call="futex_do_wait")],
            "rank 1 waits in a collective; rank 0 has not reached ",
        ),
    ],
)
def test_it_is_shown_where_a_rank_still_is_and_in_which_collective_the_others_wait(observations, description):
    assert find_culprit(observations).description.startswith(description.format("train.py:12"))


def test_both_sides_of_a_mismatch_are_shown_where_nothing_shows_which_one_is_wrong():
    ten, eleven = Collective("0", 1, "all_reduce", "[[10]] Float"), Collective("0", 1, "all_reduce", "[[11]] Float")
    found = find_culprit([observed(0, WAITING, 1, history=[ten]), observed(1, WAITING, 1, history=[eleven])])
    assert (found.rank, found.description) == (
        None,
        "rank 0 called all_reduce number 1 ([[10]] Float) at train.py:7 where rank 1 called all_reduce number 1 "
        "([[11]] Float) at train.py:7",
    )


def test_a_rank_that_has_returned_from_its_wrong_collective_is_named_with_the_line_where_it_is_now():
    usual = [Collective("0", number, "all_reduce", "[[10]] Float") for number in range(1, 5)]
    wrong = replace(usual[2], shape="[[11]] Float")
    found = find_culprit(
        [observed(0, WAITING, history=usual[:3]), observed(1, WAITING, history=[*usual[:2], wrong, usual[3]])]
    )
    assert (found.rank, found.description) == (
        1,
        "rank 1 called all_reduce number 3 ([[11]] Float) where the others called all_reduce number 3 ([[10]] Float), "
        "and is now at train.py:7",
    )


def test_exceptions_are_added_whichever_rank_has_them_and_name_a_rank_where_nothing_else_differs():
    handling = {"exceptions": "rank 1 is handling ValueError: bad (train.py:3)"}
    found = find_culprit([observed(0, SLEEPING, 7), observed(1, WAITING, 8, **handling)])
    assert (found.rank, found.description.rpartition("; ")[2]) == (0, handling["exceptions"])
    found = find_culprit([observed(0, WAITING, 8), observed(1, WAITING, 8, **handling)])
    assert found.rank == 1
    assert found.description == f"rank 1 waits for the others at train.py:7; {handling['exceptions']}"
    both = find_culprit([observed(rank, WAITING, 8, **handling) for rank in range(9)])
    assert (both.rank, both.description.count("; ")) == (None, 4)


def test_the_stack_of_a_crash_is_that_of_the_thread_that_has_crashed():
    dump = (
        "Fatal Python error: Segmentation fault\n\n"
        'Current thread 0x00007f1 [loader] (most recent call first):\n  File "/code/data.py", line 3 in read\n\n'
        'Thread 0x00007f2 (most recent call first):\n  File "/code/train.py", line 9 in step\n\n'
        "Extension modules: numpy (total: 1)\n"
    )
    assert crash_dump(f"epoch 1\n{dump}") == dump
    assert crashed_stack(dump) == [Frame("/code/data.py", 3, "read")]
    own = dump.replace("/code/data.py", "/lib/rekindle/rank/handlers.py")
    assert crashed_stack(own) == []
    assert crash_dump("Traceback …") is None
    assert crashed_stack("Fatal Python error: Aborted\n\n<no Python frame>\n") == []


def test_the_main_thread_is_read_without_the_wrapper_below_the_script():
    dump = (
        "Thread 0x00007f1 (most recent call first):\n"
        '  File "/lib/threading.py", line 300 in wait\n\n'
        "Current thread 0x00007f2 (most recent call first):\n"
        '  File "/code/train.py", line 9 in step\n'
        '  File "/code/train.py", line 20 in <module>\n'
        '  File "/lib/rekindle/rank/entrypoint.py", line 70 in _run\n'
        '  File "/lib/rekindle/rank/wrapper.py", line 83 in _run_target\n'
        '  File "/lib/torch/distributed/run.py", line 1092 in run_script_path\n'
    )
    assert main_stack(dump) == [Frame("/code/train.py", 9, "step"), Frame("/code/train.py", 20, "<module>")]
    assert main_stack("\x00\xff garbage\n  File broken") == []
