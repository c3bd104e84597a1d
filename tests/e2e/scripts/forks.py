"""Processes that are forked from one that has imported what they need."""

import json
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable


def answer(launch: Callable[[dict], list[int]]) -> None:
    """Requests from standard input, one JSON object a line, each with the exit codes of its ranks."""
    for line in sys.stdin:
        print(json.dumps(launch(json.loads(line))), flush=True)


def fork(log: str, work: Callable[[], object]) -> int:
    """The pid of a child that does ``work`` and then ends; it writes to ``log``."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  # a child must never return into the loop of its parent
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def wait_for(pids: list[int], grace: float, longest: float = math.inf) -> list[int]:
    """Exit codes after ``longest`` seconds at most; once one has failed, the others have ``grace`` seconds to end."""
    codes: dict[int, int] = {}
    deadline = time.monotonic() + longest
    while len(codes) < len(pids):
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            codes[pid] = os.waitstatus_to_exitcode(status)
            if codes[pid] != 0:
                deadline = min(deadline, time.monotonic() + grace)
            continue
        if time.monotonic() > deadline:
            for late in set(pids) - set(codes):
                os.kill(late, signal.SIGKILL)
        time.sleep(0.01)
    return [codes[pid] for pid in pids]
