"""Killing processes: the right ones, all of them, and no crash over those of another user."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rekindle.contract.processes import ProcessIdentity, descendants
from rekindle.keeper.rank_processes.process_tree import kill_all, reap_children

_NOBODY = 65534
_SHARER = """
import time
from multiprocessing.shared_memory import SharedMemory
print(SharedMemory(create=True, size=4096).name, flush=True)
time.sleep(600)
"""
_FAMILY = "import os, time\nfor _ in range(3): os.fork()\nprint(flush=True)\ntime.sleep(600)"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_process_of_another_user_is_not_signalled() -> None:
    ours = ProcessIdentity.own()
    pid = os.fork()
    if pid == 0:
        try:
            os.setuid(_NOBODY)
            os._exit(10 + ours.send_signal(signal.SIGUSR1))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 10


def test_a_whole_family_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", _FAMILY], stdout=subprocess.PIPE) as parent:
        for _ in range(8):
            parent.stdout.readline()
        family = [parent.pid, *descendants(parent.pid)]
        assert len(family) == 8
        known = [identity for pid in family if (identity := ProcessIdentity.of(pid)) is not None]
        assert kill_all(lambda: family, lambda: None) == []
        assert not any(identity.alive() for identity in known)


def test_what_the_killed_held_in_shared_memory_is_freed_by_its_resource_tracker() -> None:
    with subprocess.Popen([sys.executable, "-c", _SHARER], stdout=subprocess.PIPE) as sharer:
        segment = Path("/dev/shm", sharer.stdout.readline().decode().strip())  # noqa: S108  # where Linux has it
        family = [sharer.pid, *descendants(sharer.pid)]
        assert segment.exists()
        assert len(family) == 2
        assert kill_all(lambda: family, sharer.poll) == []
    assert not segment.exists()


def test_no_descendants_are_nothing_to_kill() -> None:
    assert kill_all(list, reap_children) == []
