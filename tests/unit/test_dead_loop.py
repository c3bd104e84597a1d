"""An endless loop is told from an evaluation, which computes as well."""

import os
from pathlib import Path

from rekindle.contract.python_stacks import Frame
from rekindle.keeper.hangs.dead_loop import SAMPLES, BusySample, DeadLoopDetector
from rekindle.keeper.ranks.probe import main_thread_events

CODE = Path("/code")
MAIN = Frame("/code/train.py", 30, "<module>")


def busy(frames, events=(100, 5, 5, 5), step=16):
    return BusySample(step, frames, events, events)


def loop(second, line=7):
    return busy([Frame("/code/train.py", line, "spin"), MAIN])


def found(samples):
    detector = DeadLoopDetector(CODE)
    return [detector.add(1, sample) for sample in samples].count(True) > 0


def test_a_loop_that_does_nothing_is_found_though_its_line_changes():
    assert found([loop(second, line=7 + second % 2) for second in range(SAMPLES + 1)])
    assert not found([loop(second) for second in range(SAMPLES)])


def test_one_that_allocates_reads_or_waits_is_none():
    assert not found([busy(loop(0).frames, (100 * second, 5, 5, 5)) for second in range(30)])


def test_what_the_request_for_the_frames_costs_is_no_work_of_the_loop():
    samples = [
        BusySample(16, loop(0).frames, (100, 5, 5, 9 * second), (100, 5, 5, 9 * (second + 1))) for second in range(30)
    ]
    assert found(samples)


def test_a_rank_that_does_not_answer_in_time_is_sampled_again():
    samples = [loop(second) if second % 2 else busy([]) for second in range(2 * SAMPLES + 2)]
    assert found(samples)


def test_one_that_is_in_a_library_is_none():
    inside = [Frame("/lib/torch/nn/functional.py", 9, "linear"), *loop(0).frames]
    assert not found([busy(inside) for _ in range(30)])


def test_one_that_calls_from_another_line_is_none():
    def frames(second):
        return [Frame("/code/train.py", 7, "count"), Frame("/code/train.py", 20 + second % 2, "<module>")]

    assert not found([busy(frames(second)) for second in range(30)])


def test_one_that_finishes_steps_is_none():
    assert not found([busy(loop(0).frames, step=second) for second in range(30)])


def test_the_events_of_a_thread_grow_when_it_reads_and_are_unknown_without_it():
    before = main_thread_events(os.getpid())
    for _ in range(50):
        Path("/proc/self/stat").read_bytes()
    after = main_thread_events(os.getpid())
    assert before is not None
    assert after is not None
    assert sum(after) >= sum(before) + 50
    assert main_thread_events(1 << 22) is None
