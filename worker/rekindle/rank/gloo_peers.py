"""Refuses a process group that another user of this machine has joined.

gloo asks nobody who he is: the first to connect to a rank's socket with the right small number is a peer, and what a
peer sends may be unpickled (``all_gather_object``). On loopback every user of the machine can be the first. So when a
group has been made, and before the script can use it, the kernel is asked for the user of each connection.
"""

import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rekindle.contract.socket_owner import peer_uid

_MODULE, _FUNCTION = "torch.distributed.distributed_c10d", "_new_process_group_helper"


class ForeignPeerError(RuntimeError):
    """Another user has connected to a socket on which this rank awaited its peers."""


def verify_peers_of_groups() -> None:
    """Check every group that torch makes in this process from now on; torch may be imported only later."""
    if _is_loaded():
        _verify_groups()
        return
    pending = [True]

    def verify_when_loaded(event: str, _: tuple[object, ...]) -> None:
        if event == "import" and pending and _is_loaded():
            pending.clear()
            _verify_groups()

    sys.addaudithook(verify_when_loaded)


def _is_loaded() -> bool:
    return hasattr(sys.modules.get(_MODULE), _FUNCTION)


def _verify_groups() -> None:
    module: Any = sys.modules[_MODULE]
    make_group = getattr(module, _FUNCTION)

    def make_and_verify(*arguments: Any, **options: Any) -> Any:
        before = set(_own_sockets())
        group = make_group(*arguments, **options)
        _verify([fd for inode, fd in _own_sockets().items() if inode not in before])
        return group

    setattr(module, _FUNCTION, make_and_verify)


def _own_sockets() -> dict[int, int]:
    """Inode → descriptor of every socket that this process has open."""
    sockets: dict[int, int] = {}
    for fd in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        with suppress(OSError):  # closed since, by another thread
            status = os.fstat(fd)
            if stat.S_ISSOCK(status.st_mode):
                sockets[status.st_ino] = fd
    return sockets


def _verify(fds: list[int]) -> None:
    """Raise ForeignPeerError where another user has connected to one of the listeners among ``fds``."""
    sockets = list(_tcp_sockets(fds))
    try:
        ports = {each.getsockname()[1] for each in sockets if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)}
        for each in sockets:
            with suppress(OSError):  # it only listens, or the kernel does not answer
                if each.getsockname()[1] in ports and each.getpeername():
                    _verify_peer(each)
    finally:
        for each in sockets:
            each.close()


def _tcp_sockets(fds: list[int]) -> Iterator[socket.socket]:
    for fd in fds:
        with suppress(OSError):
            own = socket.socket(fileno=os.dup(fd))
            if own.family == socket.AF_INET and own.type == socket.SOCK_STREAM:
                yield own
            else:
                own.close()


def _verify_peer(connection: socket.socket) -> None:
    uid = peer_uid(connection)
    host, port = connection.getsockname()[:2]
    if uid in (os.geteuid(), 0) or (uid is None and not host.startswith("127.")):  # a peer on another machine
        return
    if uid is None:
        raise ForeignPeerError(f"Connection closed by peer at port {port} before the process group was complete")
    raise ForeignPeerError(
        f"user {uid} of this machine has connected to port {port}, where this rank awaited the others: the process "
        "group cannot be trusted. Another attempt makes a new one; see `Sockets of a job` in docs/security.md"
    )
