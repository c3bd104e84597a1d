"""Which rank causes a hang: the strongest evidence decides."""

from pathlib import Path

from rekindle.contract.python_stacks import Frame, main_stack
from rekindle.keeper.hangs.culprit import RankObservation, find_culprit, position_in_code
from rekindle.keeper.ranks.probe import RankSample

WAITING = [
    Frame("/lib/torch/distributed/distributed_c10d.py", 3000, "all_reduce"),
    Frame("/code/train.py", 7, "<module>"),
]
SLEEPING = [Frame("/code/train.py", 12, "load"), Frame("/code/train.py", 7, "<module>")]
LOADING = [Frame("/lib/torch/utils/data/dataloader.py", 1100, "_get_data"), Frame("/code/train.py", 5, "<module>")]


def observed(rank, frames, *, collectives=None, state="S"):
    return RankObservation(
        RankSample(rank, None, None, 0, 0.0, collectives, state), frames, position_in_code(frames, Path("/code"))
    )


def test_the_rank_with_fewer_collectives_is_named_with_its_line():
    culprit = find_culprit([observed(0, WAITING, collectives=38), observed(1, SLEEPING, collectives=37)])
    assert culprit.rank == 1
    assert (culprit.file, culprit.line) == ("train.py", 12)
    assert "train.py:12" in culprit.description


def test_a_stopped_rank_is_named_even_when_another_is_behind():
    culprit = find_culprit(
        [observed(0, WAITING, collectives=3), observed(1, [], state="T"), observed(2, SLEEPING, collectives=2)]
    )
    assert culprit.rank == 1
    assert "SIGSTOP" in culprit.description


def test_without_counts_the_rank_outside_a_collective_is_named():
    assert find_culprit([observed(0, WAITING), observed(1, WAITING), observed(2, SLEEPING)]).rank == 2


def test_a_rank_that_waits_for_its_loader_is_described_so():
    culprit = find_culprit([observed(0, WAITING, collectives=9), observed(1, LOADING, collectives=8)])
    assert culprit.rank == 1
    assert "data loader" in culprit.description


def test_when_all_wait_for_each_other_nobody_is_blamed_and_the_positions_are_listed():
    culprit = find_culprit([observed(0, WAITING, collectives=9), observed(1, WAITING, collectives=9)])
    assert culprit.rank is None
    assert "train.py:7" in culprit.description


def test_two_ranks_behind_are_not_distinguished_by_counts_alone():
    culprit = find_culprit(
        [observed(0, WAITING, collectives=9), observed(1, WAITING, collectives=8), observed(2, SLEEPING, collectives=8)]
    )
    assert culprit.rank == 2


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


def test_garbage_is_no_stack():
    assert main_stack("\x00\xff garbage\n  File broken") == []
