"""What a rank answers to while its script runs: requests for stacks, injected faults, and torch's debug server."""

import faulthandler
import os
import signal
import sys
import time
from types import FrameType

from rekindle.contract.chaos import CHAOS_SIGNAL, Fault
from rekindle.contract.run_dir.paths import RankDir
from rekindle.contract.run_dir.rank_records import STACK_SIGNAL

_servers: list[object] = []  # kept for the life of the process: a collected server logs that on stderr


class InjectedError(RuntimeError):
    """Raised on request of ``rekindle chaos``, never by itself."""


def register_stack_dump(rank_dir: RankDir) -> None:
    """Append the stacks of all threads to the rank's file at every ``STACK_SIGNAL``, and to stderr at a crash."""
    faulthandler.enable()
    stacks = os.open(rank_dir.stacks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    faulthandler.register(STACK_SIGNAL, file=stacks, all_threads=True)


def install_fault_handler(rank_dir: RankDir) -> None:
    """Handle ``CHAOS_SIGNAL``; Python runs the handler in the main thread, between two instructions of the script."""

    def inject(_number: int, _frame: FrameType | None) -> None:
        match Fault(rank_dir.chaos.read_text()):
            case Fault.RAISE:
                raise InjectedError("injected by `rekindle chaos`")
            case Fault.OOM:
                raise MemoryError("injected by `rekindle chaos`")
            case Fault.HANG:
                while True:
                    time.sleep(3600)

    signal.signal(CHAOS_SIGNAL, inject)


def open_debug_server(rank_dir: RankDir) -> None:
    """Listen on ``RankDir.debug_socket``, readable by this user only. Nothing where torch is not loaded yet.

    Torch's server answers from a thread of its own, also while a collective blocks the script. A fresh interpreter (a
    cold attempt) has none: torch must not be imported before the script has set what torch reads at import. Call it
    before the rank's output is captured, since the server announces itself on stderr.
    """
    if "torch" not in sys.modules:
        return
    from torch._C._distributed_c10d import _WorkerServer

    directory = os.open(rank_dir.root, os.O_PATH | os.O_DIRECTORY)
    before = os.umask(0o177)
    try:
        # Through /proc: a socket's own path may have 107 bytes at most, a run directory's may be longer.
        _servers.append(_WorkerServer(f"/proc/self/fd/{directory}/{rank_dir.debug_socket.name}", -1))
    finally:
        os.umask(before)
