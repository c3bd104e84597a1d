"""Run a command on a machine that is as busy as can be: ``python tests/disturb.py make test``.

Next to it one process a core computes without end, and ten times a second one of the command's own processes, at
random, is stopped for up to ``--stop`` seconds. What fails then, and does not fail alone, depends on the order of
events or on a time limit.
"""

import argparse
import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_INTERVAL = 0.1  # seconds between two stops
_BUSY = "while True: pass"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stop", type=float, default=1.2, help="longest stop in seconds; 0: none")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # so that what a server leaves is ours to stop, too
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        return _disturb(subprocess.Popen(options.command), options.stop, {process.pid for process in busy})
    finally:
        for process in busy:
            process.kill()


def _disturb(command: "subprocess.Popen[bytes]", longest: float, spared: set[int]) -> int:
    """Exit code of ``command``; ``spared`` are never stopped."""
    stopped: dict[psutil.Process, float] = {}  # until which time
    while command.poll() is None:
        time.sleep(_INTERVAL)
        if longest and (process := _choose(spared)) is not None and process not in stopped:
            stopped[process] = time.monotonic() + random.uniform(0, longest)
        _continue(stopped, time.monotonic())
        _reap_orphans(command.pid)
    _continue(stopped, float("inf"))
    return command.returncode


def _reap_orphans(command: int) -> None:
    """Do what init does: a test may wait until a process is gone whose parent has ended."""
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != command:
            os.waitpid(ended.si_pid, 0)


def _choose(spared: set[int]) -> psutil.Process | None:
    """Stop one of the command's processes that runs; one that a test has stopped must stay so."""
    found = [each for each in psutil.Process().children(recursive=True) if each.pid not in spared]
    if not found:
        return None
    process = random.choice(found)
    with suppress(psutil.Error):
        if process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
            process.send_signal(signal.SIGSTOP)
            return process
    return None


def _continue(stopped: dict[psutil.Process, float], now: float) -> None:
    for process in [process for process, until in stopped.items() if until <= now]:
        del stopped[process]
        with suppress(psutil.Error):
            process.send_signal(signal.SIGCONT)


if __name__ == "__main__":
    raise SystemExit(main())
