"""Refuses a process group that another user of this machine has joined.

gloo does not authenticate peers: the first to connect to a rank's socket with the right small number is one, and what
a peer sends may be unpickled (``all_gather_object``). On loopback every user of the machine can be the first. So when
a group has been made, and before the script can use it, the kernel is queried for the user of each connection: that of
the other node where it comes from there.
"""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

from rekindle.contract.connection_owner import NodePeers, peer_uid
from rekindle.contract.environment import RankEnv

FUNCTION = "_new_process_group_helper"
NVIDIA_DRIVER = Path("/dev/nvidiactl")
_CONSEQUENCE = (
    "where this rank awaited the others: the process group cannot be trusted. Another attempt makes a new one; see "
    "`Sockets of a job` in docs/security.md"
)


class ForeignPeerError(RuntimeError):
    """Another user has connected to a socket on which this rank awaited its peers."""


def verify_groups(distributed: Any) -> None:
    """Check every group that torch makes from now on; ``distributed`` is its module ``distributed_c10d``."""
    make_group = getattr(distributed, FUNCTION)

    @wraps(make_group)
    def make_and_verify(*arguments: Any, **options: Any) -> Any:
        before = set(_own_sockets())
        group = make_group(*arguments, **options)
        backend = options.get("backend", arguments[3] if len(arguments) > 3 else "")
        _verify(
            [fd for inode, fd in _own_sockets().items() if inode not in before],
            may_be_gone=not _is_gloo_alone(str(backend)),
        )
        return group

    setattr(distributed, FUNCTION, make_and_verify)


def _is_gloo_alone(backend: str) -> bool:
    """True where no connection of the group is NCCL's, which closes those that it needs for a moment only."""
    return backend.lower() in ("gloo", "cpu:gloo") or not NVIDIA_DRIVER.exists()


def _own_sockets() -> dict[int, int]:
    """Descriptor of every socket that this process has open, by inode."""
    sockets: dict[int, int] = {}
    for fd in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        with suppress(OSError):  # closed since, by another thread
            status = os.fstat(fd)
            if stat.S_ISSOCK(status.st_mode):
                sockets[status.st_ino] = fd
    return sockets


def _verify(fds: list[int], *, may_be_gone: bool) -> None:
    """Raise ForeignPeerError where another user has connected to one of the listeners among ``fds``.

    ``may_be_gone``: a connection that its peer has closed is no reason to.
    """
    sockets = list(_tcp_sockets(fds))
    try:
        ports = {each.getsockname()[1] for each in sockets if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)}
        for each in sockets:
            with suppress(OSError):  # it only listens, or the kernel does not answer
                if each.getsockname()[1] in ports and each.getpeername():
                    _verify_peer(each, may_be_gone=may_be_gone)
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


def _verify_peer(connection: socket.socket, *, may_be_gone: bool) -> None:
    peers = RankEnv.read(os.environ).node_peers
    uid, where = peer_uid(connection), "this machine"
    host, port = connection.getsockname()[:2]
    if uid is None and peers is not None and not host.startswith("127."):
        uid, where = _uid_on_other_node(peers, connection, may_be_gone=may_be_gone), connection.getpeername()[0]
    elif uid is None and not host.startswith("127."):  # a peer on another machine
        return
    if uid in (os.geteuid(), 0) or (uid is None and may_be_gone):
        return
    if uid is None:
        raise ForeignPeerError(f"Connection closed by peer at port {port} before the process group was complete")
    raise ForeignPeerError(f"user {uid} of {where} has connected to port {port}, {_CONSEQUENCE}")


def _uid_on_other_node(peers: NodePeers, connection: socket.socket, *, may_be_gone: bool) -> int | None:
    other, port = connection.getpeername()[0], connection.getsockname()[1]
    if other not in peers.addresses:
        raise ForeignPeerError(
            f"{other}, which is no node of this attempt, has connected to port {port}, {_CONSEQUENCE}"
        )
    try:
        return peers.peer_uid(connection)
    except OSError as error:
        if may_be_gone:
            return None
        raise ForeignPeerError(f"Connection closed by peer at port {port}, or its node is lost: {error}") from error
