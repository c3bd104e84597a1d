"""Keepers for tests, forked from one spare keeper per test process, which has imported torch for all of them."""

import atexit
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Protocol

from rekindle.contract.environment import clean_environment
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.launch.local.spare_keepers import ForkedKeeper, SpareError, SpareKey, SpareProcess, spare_key

_MAIN = """
import sys
from pathlib import Path
from rekindle.keeper import spare
from rekindle.keeper.__main__ import main

def main_and_record(run_dir):
    code = main(run_dir)
    Path(f"{run_dir.root}.exit-code").write_text(str(code))
    return code

spare._LOW_PRIORITY = 0  # other tests run meanwhile, and this one waits
spare.serve(sys.argv[1], main_and_record)
"""
_START_SECONDS = 300.0


class StartedKeeper(Protocol):
    """What tests use of a keeper, as of ``subprocess.Popen``."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...

    def kill(self) -> None: ...


class ForkedTestKeeper:
    """Its exit code is what it has recorded; one that has recorded none was killed."""

    def __init__(self, keeper: ForkedKeeper, exit_code: Path) -> None:
        """``keeper`` may have ended already: its descriptor shows that all the same."""
        self.pid, self._exit_code = keeper.pid, exit_code
        self._pidfd = os.dup(keeper._pidfd)

    def poll(self) -> int | None:
        return self._poll(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._poll(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a forked keeper", timeout or 0)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        os.close(self._pidfd)

    def _poll(self, timeout: float | None) -> int | None:
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        if not ended.poll(None if timeout is None else 1000 * timeout):
            return None
        return int(self._exit_code.read_text()) if self._exit_code.exists() else -signal.SIGKILL


def fork_keeper(run_dir: RunDir, environment: Mapping[str, str], log: int) -> StartedKeeper | None:
    """None where the keeper must be started by itself: for its ``environment``, or since no spare keeper runs."""
    usual = spare_key(sys.executable, {**clean_environment(os.environ), "OMP_NUM_THREADS": "1"})
    if spare_key(sys.executable, environment) != usual or (spare := _spare(os.getpid(), usual)) is None:
        return None
    exit_code = Path(f"{run_dir.root}.exit-code")
    exit_code.unlink(missing_ok=True)
    request = {"run_dir": str(run_dir.root), "cwd": str(run_dir.code), "environment": dict(environment)}
    try:
        return ForkedTestKeeper(spare.launch(request, log), exit_code)
    except SpareError:
        return None


@cache
def _spare(pid: int, key: SpareKey) -> SpareProcess | None:
    """The spare keeper of the test process ``pid``, made at the first use."""
    spare = SpareProcess(key, os.environ, ("-P", "-c", _MAIN))
    atexit.register(spare.close)
    try:
        return spare if spare.is_ready(_START_SECONDS) else None
    except SpareError:
        return None
