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
from types import FrameType

from rekindle.contract.chaos import CHAOS_SIGNAL, Fault
from rekindle.contract.debug_socket import HOOKED_RECORDERS
from rekindle.contract.files import write_json
from rekindle.contract.run_dir.paths import RankDir
from rekindle.contract.run_dir.rank_records import STACK_SIGNAL

_C10D = "torch._C._distributed_c10d"  # torch's own name for what torch.distributed is made of
_KEPT_COLLECTIVES = 1000
_DUMP_SECONDS = 1.0
_KEPT_KEYS = (
    "time_created_ns", "is_p2p", "profiling_name", "process_group", "collective_seq_id", "input_sizes", "input_dtypes",
)  # fmt: skip
_servers: list[object] = []


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
    """Listen on ``RankDir.debug_socket``, readable by this user only, once torch.distributed is loaded.

    Torch's server answers from a thread of its own, also while a collective blocks the script. In a fresh interpreter
    (a cold attempt) the script imports torch, after it has set what torch reads at import; an audit hook sees that,
    since an import changes nothing for the script where a hook in ``sys.meta_path`` would. Call it before the rank's
    output is captured, since the server announces itself on stderr.
    """
    if _C10D in sys.modules:
        with suppress(AttributeError):  # of a torch that has none
            _listen(rank_dir)
        return
    rank_pid = os.getpid()

    def listen_when_loaded(event: str, _: tuple[object, ...]) -> None:
        if event == "import" and not _servers and _C10D in sys.modules and os.getpid() == rank_pid:
            with suppress(Exception), _stderr_dropped():
                _listen(rank_dir)

    sys.addaudithook(listen_when_loaded)


def save_collectives(rank_dir: RankDir) -> None:
    """Write down which collectives this rank has called last: when it has failed, nobody can ask it any more.

    In a thread for at most ``_DUMP_SECONDS``: a recorder may ask a driver that does not answer.
    """
    dump = threading.Thread(target=_dump_collectives, args=(rank_dir,), daemon=True)
    dump.start()
    dump.join(_DUMP_SECONDS)


def _dump_collectives(rank_dir: RankDir) -> None:
    with suppress(Exception):  # what torch's private function does must not hide why the script failed
        entries: list[dict[str, object]] = []
        recorders = [("_dump_fr_trace_json", ()), *(("_dump_fr_trace_json", (name,)) for name in HOOKED_RECORDERS)]
        for name, backend in [*recorders, ("_dump_nccl_trace_json", ())]:
            with suppress(AttributeError, TypeError):  # torch before 2.15 has one for all backends but NCCL
                dump = getattr(sys.modules[_C10D], name)(True, False, *backend)
                entries += json.loads(dump).get("entries", ())[-_KEPT_COLLECTIVES:]
        kept = [{key: entry[key] for key in _KEPT_KEYS} for entry in entries]
        if kept:
            write_json(rank_dir.collectives, {"entries": kept}, durable=False)


def _listen(rank_dir: RankDir) -> None:
    directory = os.open(rank_dir.root, os.O_PATH | os.O_DIRECTORY)
    before = os.umask(0o177)
    try:
        # Through /proc: a socket's own path may have 107 bytes at most, a run directory's may be longer.
        server = sys.modules[_C10D]._WorkerServer(f"/proc/self/fd/{directory}/{rank_dir.debug_socket.name}", -1)
        _servers.append(server)
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
