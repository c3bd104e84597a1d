import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from rekindle.contract.processes import ProcessIdentity, cpu_seconds, parent_of, process_state, start_time

NOBODY = 2**22 + 1  # no kernel gives such a pid


@pytest.fixture
def sleeper():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


def test_this_process_is_alive_and_neither_a_reuse_of_its_pid_nor_one_of_another_boot():
    own = ProcessIdentity.own()
    assert own.pid == os.getpid()
    assert own.alive()
    assert ProcessIdentity.from_json({"pid": own.pid, "start_time": own.start_time, "boot_id": own.boot_id}) == own
    assert not replace(own, start_time=own.start_time - 1).alive()
    assert not replace(own, boot_id="of-yesterday").alive()


def test_a_zombie_has_ended(sleeper):
    identity = ProcessIdentity.of(sleeper.pid)
    assert identity.alive()
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert process_state(sleeper.pid) == "Z"
    assert not identity.alive()
    sleeper.wait()
    assert ProcessIdentity.of(sleeper.pid) is None


def test_nobody_has_no_properties():
    assert ProcessIdentity.of(NOBODY) is None
    assert (start_time(NOBODY), process_state(NOBODY), parent_of(NOBODY), cpu_seconds(NOBODY)) == (None, None, None, 0)
    assert ProcessIdentity.of(-1) is None


def test_a_name_full_of_brackets_and_spaces_hides_nothing(tmp_path):
    program = tmp_path / ") R 1 1 (a b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "600"]) as process:
        assert parent_of(process.pid) == os.getpid()
        assert ProcessIdentity.of(process.pid).alive()
        process.kill()


def test_only_the_identified_process_is_signalled(sleeper):
    identity = ProcessIdentity.of(sleeper.pid)
    assert not replace(identity, start_time=identity.start_time - 1).send_signal(signal.SIGKILL)
    assert sleeper.poll() is None
    assert identity.send_signal(signal.SIGKILL, wait=True)
    assert not identity.alive()
    assert not identity.send_signal(signal.SIGKILL)
