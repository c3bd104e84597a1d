"""An endless loop is distinguished from an evaluation, which computes as well."""

import os
from pathlib import Path

import pytest

from rekindle.contract.rank_traces import Frame, waits_for_gpu
from rekindle.keeper.hangs.stall import SAMPLES, BusySample, DeadLoopDetector
from rekindle.keeper.rank_processes.probe import main_thread_events

CODE = Path("/code")
MAIN = Frame("/code/train.py", 30, "<module>")


def busy(frames, events=(100, 5, 5, 5), step=16):
    return BusySample(step, frames, events, events)


def loop(line=7):
    return busy([Frame("/code/train.py", line, "spin"), MAIN])


def found(samples):
    detector = DeadLoopDetector(CODE)
    return [detector.add(1, sample) for sample in samples].count(True) > 0


def test_a_loop_that_does_nothing_is_found_though_its_line_changes():
    assert found([loop(line=7 + second % 2) for second in range(SAMPLES + 1)])
    assert not found([loop()] * SAMPLES)


def at_gpu(line=7):
    frames = [Frame("/lib/torchmetrics/metric.py", line, "compute"), MAIN]
    return BusySample(16, frames, (100, 5, 5, 5), (100, 5, 5, 5), waits_for_gpu=True)


def test_a_wait_for_a_gpu_is_found_anywhere_and_only_at_one_line():
    assert found([at_gpu()] * (SAMPLES + 1))
    assert not found([at_gpu(line=7 + second % 2) for second in range(30)])
    assert not found([at_gpu() if second % 2 else loop() for second in range(30)])


@pytest.mark.parametrize(
    "sample",
    [
        lambda second: BusySample(16, loop().frames, (100, 5, 5, 9 * second), (100, 5, 5, 9 * (second + 1))),
        lambda second: loop() if second % 2 else busy([]),
    ],
    ids=["the request for the frames costs events", "the rank does not answer in time"],
)
def test_samples_are_compared_and_repeated_even_where(sample):
    assert found([sample(second) for second in range(2 * SAMPLES + 2)])


@pytest.mark.parametrize(
    "sample",
    [
        lambda second: busy(loop().frames, (100 * second, 5, 5, 5)),
        lambda _: busy([Frame("/lib/torch/nn/functional.py", 9, "linear"), *loop().frames]),
        lambda second: busy(
            [Frame("/code/train.py", 7, "count"), Frame("/code/train.py", 20 + second % 2, "<module>")]
        ),
        lambda second: busy(loop().frames, step=second),
    ],
    ids=["allocates, reads or waits", "is in a library", "is called from another line", "finishes steps"],
)
def test_a_rank_is_in_no_dead_loop_that(sample):
    assert not found([sample(second) for second in range(30)])


def test_the_events_of_a_thread_grow_when_it_reads_and_are_unknown_without_it():
    before = main_thread_events(os.getpid())
    for _ in range(50):
        Path("/proc/self/stat").read_bytes()
    after = main_thread_events(os.getpid())
    assert sum(after) >= sum(before) + 50
    assert main_thread_events(1 << 22) is None


@pytest.mark.parametrize(
    ("frame", "line", "waits"),
    [
        (Frame("/x/torch/cuda/__init__.py", 9, "synchronize"), "return torch._C._cuda_synchronize()", True),
        (MAIN, "    losses.append(loss.item())", True),
        (MAIN, "    total += loss.detach().cpu()", True),
        (MAIN, "    images = images.to(device)", True),
        (MAIN, "    total = float(loss)", True),
        (MAIN, "    if loss.isnan():", True),
        (MAIN, "    loss.backward()", False),
        (Frame("/x/torch/nn/functional.py", 9, "linear"), "return F.linear(x)", False),
        (MAIN, "", False),
    ],
)
def test_a_line_waits_for_the_gpu_by_what_it_calls(frame, line, waits):
    assert waits_for_gpu([frame, MAIN], line) is waits
