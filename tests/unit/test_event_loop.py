"""Events that end the wait of the keeper: the only code in which it blocks."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.keeper.event_loop import ControlFifo, EventLoop


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[EventLoop]:
    loop = EventLoop(ControlFifo(tmp_path / "control.fifo"))
    yield loop
    loop.close()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def ended_in_time(loop: EventLoop) -> list[int]:
    """Processes that end within half a minute."""
    while not (events := loop.wait(30)).ended and events.signals:
        pass
    return events.ended


def test_the_end_of_a_process_is_an_event_and_one_that_has_ended_cannot_be_watched(
    loop: EventLoop, sleeper: subprocess.Popen[bytes]
) -> None:
    loop.watch(sleeper.pid)
    sleeper.kill()
    assert ended_in_time(loop) == [sleeper.pid]
    sleeper.wait()
    assert not loop.watch(sleeper.pid)


def test_a_forked_child_that_closes_its_copies_does_not_stop_the_keepers_events(
    loop: EventLoop, sleeper: subprocess.Popen[bytes]
) -> None:
    loop.watch(sleeper.pid)
    child = os.fork()
    if child == 0:
        loop.close()
        os._exit(0)
    os.waitpid(child, 0)
    sleeper.kill()
    assert ended_in_time(loop) == [sleeper.pid]


def test_a_signal_is_an_event(loop: EventLoop) -> None:
    with loop.signals(signal.SIGUSR1):
        os.kill(os.getpid(), signal.SIGUSR1)
        assert loop.wait(30).signals == [signal.SIGUSR1]
