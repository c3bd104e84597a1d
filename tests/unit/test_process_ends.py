"""The end of each process is reported once, and the thread that reports it lives on."""

import os
import queue
import signal
import subprocess
from collections.abc import Iterator

import pytest

from rekindle_service.launch.local.local_launcher import ProcessEnds

_SECONDS = 60  # at most; as a rule it is milliseconds


@pytest.fixture
def reported() -> "queue.SimpleQueue[str]":
    return queue.SimpleQueue()


@pytest.fixture
def ends(reported: "queue.SimpleQueue[str]") -> Iterator[ProcessEnds]:
    ends = ProcessEnds(lambda: reported.put("end"))
    yield ends
    ends.close()


def start() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sleep", "600"])


def end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def test_the_end_of_each_process_is_reported_once(ends: ProcessEnds, reported: "queue.SimpleQueue[str]") -> None:
    first, second = start(), start()
    for process in (first, second, first):
        ends.watch(process.pid)
    end(first)
    assert reported.get(timeout=_SECONDS) == "end"
    assert reported.empty()
    end(second)
    assert reported.get(timeout=_SECONDS) == "end"
    assert reported.empty()


def test_a_process_that_has_ended_already_is_no_error(ends: ProcessEnds, reported: "queue.SimpleQueue[str]") -> None:
    gone, process = start(), start()
    end(gone)
    ends.watch(gone.pid)
    ends.watch(process.pid)
    end(process)
    assert reported.get(timeout=_SECONDS) == "end"


def test_a_process_forked_meanwhile_that_has_the_descriptors_changes_nothing(
    ends: ProcessEnds, reported: "queue.SimpleQueue[str]"
) -> None:
    first, second = start(), start()
    ends.watch(first.pid)
    holder = os.fork()
    if holder == 0:
        signal.pause()
        os._exit(0)
    try:
        end(first)
        assert reported.get(timeout=_SECONDS) == "end"
        ends.watch(second.pid)
        end(second)
        assert reported.get(timeout=_SECONDS) == "end"
        assert reported.empty()
    finally:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
