"""Changes torch.distributed in a rank, and in the interpreters that it spawns, without importing it before the script.

A rank that torchrun forks from a warm agent has torch loaded; elsewhere the script imports it, after it has set what
torch reads at import.

A store that a script serves at a loopback address listens there only; torch's listens on all interfaces. On a node of a
cluster so does the store at any address of the node, such as MASTER_ADDR.

torchrun's store is left to the ranks, and processes that a script starts may form groups at addresses of their own:
torchrun sets TORCHELASTIC_USE_AGENT_STORE for its ranks, since its agent serves the store and rank 0 starts none. A
script that starts its own processes (``mp.spawn``), each of which sets MASTER_ADDR and MASTER_PORT, would pass that on
to them, and all would wait for a store that nobody serves.
"""

import ipaddress
import multiprocessing.popen_forkserver
import multiprocessing.popen_spawn_posix
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import spawn
from typing import Any

from rekindle.contract.environment import RankEnv
from rekindle.rank import gloo_peers
from rekindle.rank.import_hooks import Hook, call_when_loaded

_STORE_CLASS = "TCPStore"
_USES_AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
_RENDEZVOUS = "torch.distributed.rendezvous"


def listen_on_loopback(rendezvous: Any) -> None:
    """Change the stores of groups that torch makes from now on; ``rendezvous`` is its module that makes them."""
    make_store = getattr(rendezvous, _STORE_CLASS)

    def make_on_loopback(*arguments: Any, **options: Any) -> Any:
        host, port = options.get("host_name"), options.get("port")
        serves = options.get("is_master") and host is not None and port is not None
        if serves and (listener := _loopback_listener(host, port)) is not None:
            options.update(port=listener.getsockname()[1], master_listen_fd=listener.detach())
        return make_store(*arguments, **options)

    setattr(rendezvous, _STORE_CLASS, make_on_loopback)


def _loopback_listener(host: Any, port: Any) -> socket.socket | None:
    """Listen at the address that clients try first; None where it is not ours, or taken: torch then finds out."""
    with suppress(OSError, ValueError):
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        ip, node = ipaddress.ip_address(address[0]), RankEnv.read(os.environ).node
        if ip.is_loopback or (node is not None and not ip.is_unspecified):
            listener = socket.socket(family)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address)
                listener.listen(4096)
            except OSError:
                listener.close()
                raise
            return listener
    return None


_HOOKS: tuple[Hook, ...] = (
    ("torch.distributed.distributed_c10d", gloo_peers.FUNCTION, gloo_peers.verify_groups),
    (_RENDEZVOUS, _STORE_CLASS, listen_on_loopback),
)
_INSTALL = f"""
try:
    from {__name__} import install
except ImportError:  # another interpreter, by multiprocessing.set_executable
    pass
else:
    install()
"""


def install() -> None:
    """Install all hooks; call it once in a process, before its script runs."""
    call_when_loaded(_HOOKS)
    _install_in_spawned()


class _Installed:
    """Calls ``install`` in a spawned interpreter, where it is unpickled before anything of the script."""

    def __reduce__(self) -> tuple[object, ...]:
        return exec, (_INSTALL,)


def _install_in_spawned() -> None:
    prepare = spawn.get_preparation_data

    def prepare_with_hooks(name: str) -> dict[str, Any]:
        return {**prepare(name), "rekindle": _Installed()}

    spawn.get_preparation_data = prepare_with_hooks


def leave_agent_store_to_this_rank() -> None:
    """Keep the agent's store from other processes; call it before the script. Nothing changes without torchrun."""
    if os.environ.get(_USES_AGENT_STORE) != "True":
        return
    for popen in (multiprocessing.popen_spawn_posix.Popen, multiprocessing.popen_forkserver.Popen):
        _start_without_variable(popen)
    address = _address()
    _bind_to(address)
    os.register_at_fork(after_in_child=lambda: _bind_to(address))  # torch may be imported only after this


def _start_without_variable(popen: Any) -> None:
    """Start fresh interpreters without the variable, which they read only from their environment."""
    launch = popen._launch

    def launch_without_variable(self: Any, process: Any) -> None:
        with _without_variable():
            launch(self, process)

    popen._launch = launch_without_variable


@contextmanager
def _without_variable() -> Iterator[None]:
    value = os.environ.pop(_USES_AGENT_STORE, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[_USES_AGENT_STORE] = value


def _bind_to(address: tuple[str | None, str | None]) -> None:
    """Have torch, if it is loaded, use the agent's store only at the agent's own address."""
    rendezvous: Any = sys.modules.get(_RENDEZVOUS)
    if rendezvous is None:
        return
    uses_agent_store = rendezvous._torchelastic_use_agent_store
    rendezvous._torchelastic_use_agent_store = lambda: _address() == address and uses_agent_store()


def _address() -> tuple[str | None, str | None]:
    return os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
