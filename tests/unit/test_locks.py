import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rekindle.contract.locks import ExclusiveLock, LockHeldError, lock_holder

_OWNER = """
import os, sys
from pathlib import Path
from rekindle.contract.locks import ExclusiveLock
lock = ExclusiveLock(Path(sys.argv[1]))
if sys.argv[2] == "leave a child" and os.fork() == 0:
    os.close(1)
    sys.stdin.read()
    os._exit(0)
print("owned", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def owner(tmp_path):
    started = []

    def start(part=""):
        process = subprocess.Popen(
            [sys.executable, "-c", _OWNER, str(tmp_path / "lock"), part], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout.readline() == b"owned\n"
        return process

    yield start
    for process in started:
        process.communicate(timeout=10)


def test_a_lock_has_one_owner_at_a_time_and_names_it_and_asking_takes_nothing(tmp_path, owner):
    assert lock_holder(tmp_path / "lock") is None
    assert not (tmp_path / "lock").exists()
    ExclusiveLock(tmp_path / "lock").release()
    process = owner()
    for _ in range(3):
        assert lock_holder(tmp_path / "lock") == process.pid
    with pytest.raises(LockHeldError, match=f"held by process {process.pid}") as raised:
        ExclusiveLock(tmp_path / "lock")
    assert raised.value.pid == process.pid


def test_a_lock_dies_with_its_owner_even_if_a_child_lives_on(tmp_path, owner):
    process = owner("leave a child")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert lock_holder(tmp_path / "lock") is None
    lock = ExclusiveLock(tmp_path / "lock")
    lock.release()


def test_a_directory_that_cannot_be_locked_is_not_taken_for_a_held_one(tmp_path):
    with pytest.raises(FileNotFoundError):
        ExclusiveLock(tmp_path / "nowhere" / "lock")


def test_lock_files_are_not_inherited_by_programs(tmp_path):
    lock = ExclusiveLock(tmp_path / "lock")
    own = [int(fd.name) for fd in Path("/proc/self/fd").iterdir() if os.path.realpath(fd) == str(tmp_path / "lock")]
    assert [os.get_inheritable(fd) for fd in own] == [False]
    lock.release()
