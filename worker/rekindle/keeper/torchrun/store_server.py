"""The store of an attempt's ranks, in a process of its own: torch's, but only for processes of the same user.

torch does not authenticate peers, and every user of a machine can connect to its loopback interface. Who writes into
the store decides where ranks connect to, and so what they unpickle. So a proxy listens at the address that the ranks
know, and asks the kernel for the user of each connection. Behind it, torch's store accepts only segments that this
process has signed (TCP MD5, RFC 2385).

Not in the agent, which forks the ranks: a fork copies the forking thread only, with locks that others hold.
"""

import errno
import os
import secrets
import signal
import socket
import struct
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import NoReturn, Protocol

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # which is public all the same

from rekindle.contract.connection_owner import Address, NodePeers, OwnerServer, peer_uid
from rekindle.contract.processes import die_with_parent, set_process_name
from rekindle.keeper.keeper_environment import log
from rekindle.keeper.torchrun.node_plan import NodePlan

HOST = "127.0.0.1"
_HOSTS_BEHIND = (
    "127.0.0.2",
    "127.0.0.3",
)  # the first that is not the ranks' own; the port must be the same: torch connects to its own store as the ranks do
_PORTS_TRIED = 20
_MIN_PORT, _PORTS = 1024, 12_000  # where the nodes of a cluster listen
_BACKLOG = 4096
_TCP_MD5SIG_EXT, _FLAG_PREFIX = 32, 1
_MD5SIG = struct.Struct("=HH4s120x BBHi80s")  # tcp_md5sig: address, flags, length of its prefix, of the key, interface
_CHUNK = 1 << 16
_MAX_LOGGED = 100
_START_TIMEOUT = timedelta(seconds=60)


class StoreStartError(Exception):
    """The store's process ended before it served; the reason is in the agent's log."""


def start_store_server(host: str = HOST, allowed: Sequence[str] = (), secret: str | None = None) -> int:
    """Fork the store's process, which ends with this one; returns its port on ``host``. Call it while single-threaded.

    ``allowed``: IPv4 addresses of other nodes whose ranks may connect, too: those of the same user where the nodes know
    the ``secret``, else everybody there. Raises StoreStartError.
    """
    others = tuple(each for each in allowed if each != host)
    return _fork_server("rekindle-store", lambda: StoreServer(host, others, secret or ""))


def start_owner_server(plan: NodePlan) -> None:
    """Fork the process that answers for this node, which is not the first; see ``start_store_server``."""
    _fork_server("rekindle-owners", lambda: _serve_owners((plan.address, plan.store_port + 1), plan.secret))


def _serve_owners(address: Address, secret: str) -> OwnerServer:
    server = OwnerServer(address, secret)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class _Server(Protocol):
    """Serves at ``port`` while it is referred to."""

    port: int


def _fork_server(name: str, serve: Callable[[], _Server]) -> int:
    """The port at which ``serve`` answers in a process of its own."""
    parent = os.getpid()
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        _become_server(parent, writer, name, serve)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        port = pipe.read()
    if not port:
        raise StoreStartError(f"the process {name} ended before it served")
    return int(port)


def _become_server(parent: int, writer: int, name: str, serve: Callable[[], _Server]) -> NoReturn:
    try:
        die_with_parent(parent)
        set_process_name(name)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)  # ranks that save after one of them may need the store
        server = serve()
        os.write(writer, str(server.port).encode())
        os.close(writer)
        while True:
            signal.pause()
    except BaseException:  # noqa: BLE001  # nothing may return into the agent's own code
        traceback.print_exc()
    finally:
        os._exit(1)


class StoreServer:
    """Serves at ``port`` on ``host`` from construction to the end of the process."""

    def __init__(self, host: str, others: tuple[str, ...], secret: str) -> None:
        self._host, self._others, self._secret = host, others, secret
        self._behind = next(each for each in _HOSTS_BEHIND if each != host)
        self._key: bytes | None = os.urandom(64)
        self._logged: set[object] = set()
        try:
            listener, behind = self._listen_twice()
        except OSError as error:
            log(f"every user of this machine can reach the ranks' store at {host}: {error}")
            listener, behind = self._listen_openly()
        self.port: int = listener.getsockname()[1]
        self._peers = NodePeers(others, self.port + 1, secret)
        if behind is not listener:
            threading.Thread(target=self._admit_all, args=[listener], daemon=True).start()
        self._store = TCPStore(
            host, self.port, is_master=True, wait_for_workers=False, timeout=_START_TIMEOUT,
            master_listen_fd=behind.detach(),
        )  # fmt: skip

    def _listen_twice(self) -> tuple[socket.socket, socket.socket]:
        """Where the ranks connect to, and behind that. Raises OSError where the kernel cannot do what this needs."""
        for _ in range(_PORTS_TRIED):
            try:
                listener, behind = self._listen_at(_port_below_dynamic() if self._secret else 0)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            with self._connect_behind(behind.getsockname()) as ours, behind.accept()[0]:
                if self._key is None or peer_uid(ours) == os.geteuid():
                    return listener, behind
            raise OSError("the kernel does not name the user of a connection")
        raise OSError(f"no port is free on both {self._host} and {self._behind}")

    def _listen_at(self, port: int) -> tuple[socket.socket, socket.socket]:
        with ExitStack() as opened:
            listener = opened.enter_context(_listen(self._host, port))
            behind = opened.enter_context(_listen(self._behind, listener.getsockname()[1], self._key))
            if self._secret:
                _serve_owners((self._host, port + 1), self._secret)
            opened.pop_all()
            return listener, behind

    def _listen_openly(self) -> tuple[socket.socket, socket.socket]:
        """Listen for every user of this machine, and of others only for those allowed."""
        if self._host == HOST:
            listener = _listen(HOST)
            return listener, listener
        self._key = None
        return self._listen_twice()

    def _connect_behind(self, address: Address) -> socket.socket:
        connection = socket.socket() if self._key is None else _signing_socket(self._key)
        connection.connect(address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _admit_all(self, listener: socket.socket) -> None:
        """Connect processes of this user with the store, for ever."""
        while True:
            with suppress(OSError):  # no descriptor is free, or it has been closed already
                connection = listener.accept()[0]
                if connection.getpeername()[0] in self._others:  # its node may take a while to answer
                    threading.Thread(target=self._admit, args=[connection], daemon=True).start()
                else:
                    self._admit(connection)

    def _admit(self, connection: socket.socket) -> None:
        with suppress(OSError):
            if self._is_admitted(connection):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._forward_both(connection, self._connect_behind((self._behind, self.port)))
            else:
                connection.close()

    def _is_admitted(self, connection: socket.socket) -> bool:
        peer: str = connection.getpeername()[0]
        if self._key is None and peer == self._host:
            return True
        uid, where = None if self._key is None else peer_uid(connection), "this machine"
        if uid is None and peer in self._others:
            uid, where = self._uid_at(connection), peer
        if uid in (os.geteuid(), 0):
            return True
        if uid is not None:
            self._log_once((where, uid), f"refused a connection of user {uid} of {where}")
        elif peer not in (self._host, *self._others):
            self._log_once(peer, f"refused a connection of {peer}, which is no node of this attempt,")
        return False

    def _uid_at(self, connection: socket.socket) -> int | None:
        try:
            return self._peers.peer_uid(connection)
        except OSError as error:
            self._log_once(str(error), f"refused a connection, since {error},")
            return None

    def _log_once(self, cause: object, sentence: str) -> None:
        """A bounded number of lines: the log must not grow at another's will."""
        if cause not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add(cause)
            log(f"{sentence} to the ranks' store at {self._host}:{self.port}")

    def _forward_both(self, one: socket.socket, other: socket.socket) -> None:
        for source, target in ((one, other), (other, one)):
            threading.Thread(target=_forward, args=[source, target], daemon=True).start()


def _forward(source: socket.socket, target: socket.socket) -> None:
    """Copy what arrives until one end closes; the other direction closes then, too."""
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _listen(host: str, port: int = 0, key: bytes | None = None) -> socket.socket:
    listener = socket.socket() if key is None else _signing_socket(key)
    listener.bind((host, port))
    listener.listen(_BACKLOG)
    return listener


def _port_below_dynamic() -> int:
    """A port that, with the next one, is probably free on all nodes: the kernel gives it to no outgoing connection."""
    first_dynamic = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    last = max(first_dynamic - 2, _MIN_PORT + 2)
    return secrets.choice(range(max(_MIN_PORT, last - _PORTS), last, 2))


def _signing_socket(key: bytes) -> socket.socket:
    """A socket that signs all that it sends, and drops what is not signed with ``key``, from whatever address."""
    signing = socket.socket()
    option = _MD5SIG.pack(socket.AF_INET, 0, bytes(4), _FLAG_PREFIX, 0, len(key), 0, key)
    signing.setsockopt(socket.IPPROTO_TCP, _TCP_MD5SIG_EXT, option)
    return signing
