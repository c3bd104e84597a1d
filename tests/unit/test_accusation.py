"""Which rank holds the others up: the strongest evidence decides."""

from pathlib import Path

from rekindle.keeper.accusation import Suspect, accuse
from rekindle.keeper.stacks import Frame, main_stack, place
from rekindle.keeper.vital_signs import Vitals

WAITING = [
    Frame("/lib/torch/distributed/distributed_c10d.py", 3000, "all_reduce"),
    Frame("/code/train.py", 7, "<module>"),
]
SLEEPING = [Frame("/code/train.py", 12, "load"), Frame("/code/train.py", 7, "<module>")]
LOADING = [Frame("/lib/torch/utils/data/dataloader.py", 1100, "_get_data"), Frame("/code/train.py", 5, "<module>")]


def suspect(rank, frames, *, collectives=None, state="S"):
    return Suspect(Vitals(rank, None, None, 0, 0.0, collectives, state), frames, place(frames, Path("/code")))


def test_the_rank_with_fewer_collectives_is_named_with_its_line():
    accused = accuse([suspect(0, WAITING, collectives=38), suspect(1, SLEEPING, collectives=37)])
    assert accused.rank == 1
    assert accused.place == Frame("train.py", 12, "load")
    assert "train.py:12" in accused.sentence


def test_a_stopped_rank_is_named_even_when_another_is_behind():
    accused = accuse(
        [suspect(0, WAITING, collectives=3), suspect(1, [], state="T"), suspect(2, SLEEPING, collectives=2)]
    )
    assert accused.rank == 1
    assert "SIGSTOP" in accused.sentence


def test_without_counts_the_rank_outside_a_collective_is_named():
    assert accuse([suspect(0, WAITING), suspect(1, WAITING), suspect(2, SLEEPING)]).rank == 2


def test_a_rank_that_waits_for_its_loader_is_said_to():
    accused = accuse([suspect(0, WAITING, collectives=9), suspect(1, LOADING, collectives=8)])
    assert accused.rank == 1
    assert "data loader" in accused.sentence


def test_when_all_wait_for_each_other_nobody_is_blamed_and_the_places_are_told():
    accused = accuse([suspect(0, WAITING, collectives=9), suspect(1, WAITING, collectives=9)])
    assert accused.rank is None
    assert "train.py:7" in accused.sentence


def test_two_ranks_behind_are_not_told_apart_by_counts_alone():
    accused = accuse(
        [suspect(0, WAITING, collectives=9), suspect(1, WAITING, collectives=8), suspect(2, SLEEPING, collectives=8)]
    )
    assert accused.rank == 2


def test_the_main_thread_is_read_without_the_wrapper_below_the_script():
    dump = (
        "Thread 0x00007f1 (most recent call first):\n"
        '  File "/lib/threading.py", line 300 in wait\n\n'
        "Current thread 0x00007f2 (most recent call first):\n"
        '  File "/code/train.py", line 9 in step\n'
        '  File "/code/train.py", line 20 in <module>\n'
        '  File "/lib/rekindle/rank/target.py", line 70 in _run\n'
        '  File "/lib/rekindle/rank/wrapper.py", line 83 in _run_target\n'
        '  File "/lib/torch/distributed/run.py", line 1092 in run_script_path\n'
    )
    assert main_stack(dump) == [Frame("/code/train.py", 9, "step"), Frame("/code/train.py", 20, "<module>")]


def test_garbage_is_no_stack():
    assert main_stack("\x00\xff garbage\n  File broken") == []
