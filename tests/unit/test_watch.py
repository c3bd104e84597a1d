"""The keeper's one waiting place."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.keeper.bell import ControlFifo
from rekindle.keeper.watch import Watch


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    watch = Watch(ControlFifo(tmp_path / "bell"))
    yield watch
    watch.close()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def ended_in_time(watch: Watch) -> list[int]:
    """What ends within half a minute, at the first sign."""
    while not (events := watch.wait(30)).ended and events.signals:
        pass
    return events.ended


def test_the_end_of_a_process_is_heard(watch: Watch, sleeper: subprocess.Popen[bytes]) -> None:
    watch.add(sleeper.pid)
    sleeper.kill()
    assert ended_in_time(watch) == [sleeper.pid]


def test_a_forked_child_that_closes_its_copies_does_not_deafen_the_keeper(
    watch: Watch, sleeper: subprocess.Popen[bytes]
) -> None:
    watch.add(sleeper.pid)
    child = os.fork()
    if child == 0:
        watch.close()
        os._exit(0)
    os.waitpid(child, 0)
    sleeper.kill()
    assert ended_in_time(watch) == [sleeper.pid]


def test_a_process_that_is_gone_cannot_be_added(watch: Watch, sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()
    assert not watch.add(sleeper.pid)


def test_a_signal_is_an_event(watch: Watch) -> None:
    with watch.signals(signal.SIGUSR1):
        os.kill(os.getpid(), signal.SIGUSR1)
        assert watch.wait(30).signals == [signal.SIGUSR1]
