"""A job of one rank that fails, hangs or ends in the way that its argument names."""

import ctypes
import os
import signal
import sys
import threading
from pathlib import Path

import rekindle


def resave():
    """Load the checkpoint of the attempt before, save it again, and raise at the same line."""
    import torch

    path = Path("checkpoint.pt")
    state = torch.load(path) if path.exists() else {"step": torch.zeros(1)}
    torch.save(state, path)
    raise ValueError("always here")


def wait_for_a_message():
    for step in range(5):
        rekindle.report(step=step)
    threading.Event().wait()


def hold_the_gil():
    rekindle.report(step=1)
    while True:
        ctypes.PyDLL(None).sleep(10_000)  # which a signal ends


def chain():
    try:
        raise MemoryError
    except MemoryError:
        raise RuntimeError("while memory had run out")  # noqa: B904  # as scripts do


def send(number):
    return lambda: os.kill(os.getpid(), number)


def exec_python(code):
    return lambda: os.execv(sys.executable, [sys.executable, "-c", f"import sys; sys.exit({code})"])  # noqa: S606


WAYS = {
    "end": lambda: None,
    "exit 0": lambda: sys.exit(0),
    "_exit 0": lambda: os._exit(0),
    "exec 0": exec_python(0),
    "raise": lambda: 1 / 0,
    "key": lambda: {}["lr"],
    "assert": lambda: (_ for _ in ()).throw(AssertionError("no")),
    "recursion": lambda: WAYS["recursion"](),
    "import": lambda: __import__("no_such_module"),
    "syntax": lambda: compile("def", "train.py", "exec"),
    "interrupt": lambda: (_ for _ in ()).throw(KeyboardInterrupt),
    "exit 3": lambda: sys.exit(3),
    "exit text": lambda: sys.exit("nothing to train"),
    "_exit 7": lambda: os._exit(7),
    "exec 7": exec_python(7),
    "segv": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "bus": send(signal.SIGBUS),
    "kill": send(signal.SIGKILL),
    "term": send(signal.SIGTERM),
    "memory": lambda: bytearray(1 << 60),
    "chained memory": chain,
    "disk full": lambda: Path("/dev/full").write_text("x" * 10_000),
    "resave": resave,
    "hang": wait_for_a_message,
    "gil": hold_the_gil,
    "stop": send(signal.SIGSTOP),
}

WAYS[sys.argv[1]]()
