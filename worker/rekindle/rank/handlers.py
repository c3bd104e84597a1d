"""What a rank answers to while its script runs: requests for stacks, injected faults, and torch's debug server."""

import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from rekindle.contract.files import write_json
from rekindle.contract.rank_traces import EXCEPTIONS, HOOKED_RECORDERS
from rekindle.contract.run_dir.control_messages import CHAOS_SIGNAL, Fault
from rekindle.contract.run_dir.paths import RankDir
from rekindle.contract.run_dir.rank_records import STACK_SIGNAL
from rekindle.rank.failure import position, summarize
from rekindle.rank.gloo_peers import NVIDIA_DRIVER
from rekindle.rank.import_hooks import call_when_loaded

_C10D = "torch._C._distributed_c10d"  # torch's own name for what torch.distributed is made of
_KEPT_COLLECTIVES = 1000
_DUMP_SECONDS = 3.0
_KEPT_KEYS = (
    "time_created_ns", "is_p2p", "profiling_name", "process_group", "collective_seq_id", "input_sizes", "input_dtypes",
)  # fmt: skip
_MAX_DEAD_THREADS = 3
_TerminateHandler = ctypes.CFUNCTYPE(None)
_terminate_handlers: list[Any] = []
_dead_threads: list[str] = []  # the first that ended by an exception: "thread loader of rank 1 had ended by …"


class InjectedError(RuntimeError):
    """An exception that is raised on request of ``rekindle chaos``, never by itself."""


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


def record_thread_exceptions(rank: int, code: Path) -> None:
    """Remember what ends a thread: the main thread may wait for it for ever. Python's own hook still prints it."""
    before = threading.excepthook

    def record(ended: threading.ExceptHookArgs) -> None:
        if ended.exc_value is not None and ended.exc_type is not SystemExit and len(_dead_threads) < _MAX_DEAD_THREADS:
            name = "" if ended.thread is None else f" {ended.thread.name}"
            _dead_threads.append(f"thread{name} of rank {rank} had ended by {summarize(ended.exc_value, code)}")
        before(ended)

    threading.excepthook = record


def open_debug_server(rank_dir: RankDir, rank: int, code: Path) -> None:
    """Listen on ``RankDir.debug_socket``, readable by this user only, once torch.distributed is loaded.

    Torch's server answers from a thread of its own, also while a collective blocks the script. In a fresh interpreter
    (a cold attempt) the script imports torch, after it has set what torch reads at import. What the server announces on
    stderr is dropped. It also answers about the ``rank``'s exceptions.
    """
    rank_pid = os.getpid()

    def listen(c10d: Any) -> None:
        if os.getpid() != rank_pid:  # a process that the script forked
            return
        with suppress(Exception), _stderr_dropped():  # the rank can do without it
            _listen(c10d, rank_dir)
            with suppress(AttributeError, OSError):  # of a torch that cannot, or is linked to another library
                c10d._register_handler(EXCEPTIONS, partial(_answer_exceptions, rank, code))
                # NCCL's watchdog must end a rank also where another thread holds the GIL
                if not NVIDIA_DRIVER.exists():
                    _save_collectives_before_abort(rank_dir)

    call_when_loaded([(_C10D, "_WorkerServer", listen)])


def _answer_exceptions(rank: int, code: Path, _request: object, response: Any) -> None:
    """Answer, in a thread of the server, what the main thread is handling (``finally``), and what ended threads."""
    current: Any = sys._current_exceptions().get(threading.main_thread().ident or 0)
    handled = current[1] if isinstance(current, tuple) else current  # before Python 3.12 as of ``sys.exc_info``
    clauses = list(_dead_threads)
    if handled is not None and not Path(position(handled, code)[0] or "/").is_absolute():
        clauses.insert(0, f"rank {rank} is handling {summarize(handled, code)}")
    response.set_content(json.dumps({"exceptions": "; ".join(clauses)}), "application/json")
    response.set_status(200)


def save_collectives(rank_dir: RankDir) -> None:
    """Write down which collectives this rank has called last: when it has failed, nobody can ask it any more.

    Ask the recorders in a thread for at most ``_DUMP_SECONDS``: one may ask a driver that does not answer.
    """
    entries: list[dict[str, object]] = []
    dump = threading.Thread(target=_dump_collectives, args=(entries,), daemon=True)
    dump.start()
    dump.join(_DUMP_SECONDS)
    with suppress(Exception):  # what is wrong with torch's private answer must not hide why the script failed
        if kept := [{key: entry[key] for key in _KEPT_KEYS} for entry in entries]:
            write_json(rank_dir.collectives, {"entries": kept}, durable=False)


def _save_collectives_before_abort(rank_dir: RankDir) -> None:
    """Save the collectives in C++'s ``terminate``, by which a thread of gloo ends a rank that gets a wrong message."""
    set_terminate = ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE
    set_terminate.restype, set_terminate.argtypes = _TerminateHandler, [_TerminateHandler]
    rank_pid = os.getpid()

    def save() -> None:
        if os.getpid() == rank_pid:
            save_collectives(rank_dir)
        before()  # prints the exception and aborts

    _terminate_handlers.append(_TerminateHandler(save))
    before = set_terminate(_terminate_handlers[-1])


def _dump_collectives(entries: list[dict[str, object]]) -> None:
    with suppress(Exception):
        recorders = [("_dump_fr_trace_json", ()), *(("_dump_fr_trace_json", (name,)) for name in HOOKED_RECORDERS)]
        for name, backend in [*recorders, ("_dump_nccl_trace_json", ())]:
            with suppress(AttributeError, TypeError):  # torch before 2.15 has one for all backends but NCCL
                dump = getattr(sys.modules[_C10D], name)(True, False, *backend)
                entries += json.loads(dump).get("entries", ())[-_KEPT_COLLECTIVES:]


def _listen(c10d: Any, rank_dir: RankDir) -> None:
    directory = os.open(rank_dir.root, os.O_PATH | os.O_DIRECTORY)
    before = os.umask(0o177)
    try:
        # Through /proc: a socket's own path may have 107 bytes at most, a run directory's may be longer.
        server = c10d._WorkerServer(f"/proc/self/fd/{directory}/{rank_dir.debug_socket.name}", -1)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))  # never destroyed: it would log that at the very end
    finally:
        os.umask(before)


@contextmanager
def _stderr_dropped() -> Iterator[None]:
    own, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
        os.close(nowhere)
