"""Leaves torchrun's store to the ranks: processes that a script starts may form groups at addresses of their own.

torchrun sets TORCHELASTIC_USE_AGENT_STORE for its ranks: its agent serves the store, so that rank 0 starts none. A
script that starts its own processes (``mp.spawn``), each of which sets MASTER_ADDR and MASTER_PORT, passes that on to
them: all of them would wait for a store that nobody serves.
"""

import multiprocessing.popen_forkserver
import multiprocessing.popen_spawn_posix
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_VARIABLE = "TORCHELASTIC_USE_AGENT_STORE"
_RENDEZVOUS = "torch.distributed.rendezvous"


def leave_agent_store_to_this_rank() -> None:
    """Call it before the script runs. Nothing changes where torchrun has not started this process."""
    if os.environ.get(_VARIABLE) != "True":
        return
    for popen in (multiprocessing.popen_spawn_posix.Popen, multiprocessing.popen_forkserver.Popen):
        _start_without_variable(popen)
    address = _address()
    _bind_to(address)
    os.register_at_fork(after_in_child=lambda: _bind_to(address))  # torch may be imported only after this


def _start_without_variable(popen: Any) -> None:
    """A fresh interpreter reads the variable only from its environment."""
    launch = popen._launch

    def launch_without_variable(self: Any, process: Any) -> None:
        with _without_variable():
            launch(self, process)

    popen._launch = launch_without_variable


@contextmanager
def _without_variable() -> Iterator[None]:
    value = os.environ.pop(_VARIABLE, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[_VARIABLE] = value


def _bind_to(address: tuple[str | None, str | None]) -> None:
    """Have torch, if it is loaded, use the agent's store only at the agent's own address."""
    rendezvous: Any = sys.modules.get(_RENDEZVOUS)
    if rendezvous is None:
        return
    uses_agent_store = rendezvous._torchelastic_use_agent_store
    rendezvous._torchelastic_use_agent_store = lambda: _address() == address and uses_agent_store()


def _address() -> tuple[str | None, str | None]:
    return os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
