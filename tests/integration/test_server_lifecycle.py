import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli_process import rekindle
from e2e.serve_process import ServeProcess
from e2e.waiting import until

_ROUNDS = """
import os, signal, sys, threading, time
from pathlib import Path
from rekindle_service.server import serve
from rekindle_service.config.settings import Settings

home = Path(sys.argv[1])

def stop_when_up():
    while not (home / "server.json").exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)

def once():
    stopper = threading.Thread(target=stop_when_up)
    stopper.start()
    assert serve(Settings(home=home, port=0, cpu_slots=1)) == 0
    stopper.join()
    assert not (home / "server.json").exists()

def held():
    deadline = time.monotonic() + 30  # a joined thread may leave the kernel a moment later
    while len(os.listdir("/proc/self/task")) != threading.active_count() and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(os.listdir("/proc/self/task"))

once()
before = held()
for _ in range(10):
    once()
print(before, held())
assert held() == before
"""


def test_starting_and_stopping_leaks_no_descriptor_and_no_thread(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ROUNDS, str(tmp_path / "home")],
        env={name: value for name, value in os.environ.items() if not name.startswith("REKINDLE_")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_a_server_whose_lock_was_removed_keeps_its_home_and_is_found_again(tmp_path: Path) -> None:
    with ServeProcess(tmp_path) as server:
        (tmp_path / "server.lock").unlink()
        second = rekindle(tmp_path, "serve", "--port", "0")
        assert second.returncode == 2, second.stdout
        assert f"{tmp_path} is in use by the server with pid {server.pid}" in second.stderr
        until(lambda: rekindle(tmp_path, "ps").returncode == 0, "commands find the first server again", 60)
