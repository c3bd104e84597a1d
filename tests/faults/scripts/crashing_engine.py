"""Runs the engine in children that die at a given line: ``python crashing_engine.py``; one command a line on stdin.

``prepare HOME``: one queued job. ``die HOME N``: the engine, killed at the N-th line of its own code that it executes.
``finish HOME``: the next server's engine, until the job has ended. Each answers with one line: the lines executed, or
"killed", or the state of the job.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from fakes.launching import fake_launchers
from job_examples import cpu_machine, open_store, queued_job
from rekindle.contract.states import TERMINAL
from rekindle_service import store as store_package
from rekindle_service.config.home import Home
from rekindle_service.scheduler import reconciler
from rekindle_service.scheduler.reconciler import Reconciler

WATCHED = (str(Path(reconciler.__file__).parent), str(Path(store_package.__file__).parent), str(Path(__file__).parent))
ROUNDS = 2000


class Deadly:
    """A tracer that counts the lines of the watched code and kills this process at one of them."""

    def __init__(self, line: int) -> None:
        self.lines, self._deadly = 0, line

    def __call__(self, frame: FrameType, event: str, _: Any) -> "Deadly | None":
        if not frame.f_code.co_filename.startswith(WATCHED):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self._deadly:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


def run(home: Home, tracer: Deadly | None) -> str:
    store = open_store(home.root)
    engine = Reconciler(store, home, cpu_machine(1), fake_launchers(store, home, cpu_machine(1)))
    engine.recover()
    (job_id,) = store.recovery.known_jobs()
    for _ in range(ROUNDS):
        sys.settrace(tracer)
        engine.reconcile()
        sys.settrace(None)
        if store.job_state(job_id) in TERMINAL:
            break
        time.sleep(0.01)
    state = store.job_state(job_id)
    engine.close()
    store.close()
    return str(state) if tracer is None else str(tracer.lines)


def prepare(home: Home) -> str:
    home.create()
    store = open_store(home.root)
    queued_job(store, home, args=["succeed"])
    store.close()
    return "prepared"


def in_child(action: Callable[[], str]) -> str:
    """What ``action`` returns, "killed" where its process was."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        os.write(writer, action().encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(pid, 0)
    return "killed" if os.WIFSIGNALED(status) else answer


for command in sys.stdin:
    verb, directory, *rest = command.split()
    home = Home(Path(directory))
    actions = {
        "prepare": lambda home=home: prepare(home),
        "die": lambda home=home, rest=rest: run(home, Deadly(int(rest[0]))),
        "finish": lambda home=home: run(home, None),
    }
    print(in_child(actions[verb]), flush=True)
