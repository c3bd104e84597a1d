"""Which user is at the other end of a TCP connection, on this machine or on another node of a cluster.

The kernel answers about its own machine to any user (sock_diag(7)), in one message, however many connections there are.
torch does not authenticate peers, and a node of a cluster may have users that the job's does not trust: each node of an
attempt answers about its own, at the same port, to those who know the attempt's secret, and signs what it answers.
"""

import hmac
import json
import os
import socket
import socketserver
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_ESTABLISHED, _ANY_STATE, _NO_COOKIE = 1, 0xFFFFFFFF, 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBBxI 2s2s 16s16s I II")  # inet_diag_req_v2; ports and addresses in network order
_ANSWER = struct.Struct("=BBBB 2s2s 16s16s I II I I I I")  # inet_diag_msg, up to the user's id

Address = tuple[str, int]  # IPv4

TIMEOUT = 5.0  # seconds, for each step of asking
_MAX_LINE = 4096
_DIGEST = "sha256"
_UNKNOWN = "unknown"


def peer_uid(connection: socket.socket) -> int | None:
    """The user whose process holds the other end of ``connection``, which is IPv4; None where that is not open here.

    Raises OSError where the kernel does not answer, such as in a sandbox that forbids it.
    """
    return uid_of(connection.getpeername()[:2], connection.getsockname()[:2])


def uid_of(local: Address, remote: Address) -> int | None:
    """The user who owns the established connection that is ``local`` here and leads to ``remote``; None for none.

    A socket that is closed or only listens counts as none: the kernel may name the wrong user for it.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(5)
        request = _REQUEST.pack(
            socket.AF_INET, socket.IPPROTO_TCP, 0, _ANY_STATE, _port(local), _port(remote), _host(local), _host(remote),
            0, _NO_COOKIE, _NO_COOKIE,
        )  # fmt: skip
        size = _HEADER.size + len(request)
        kernel.sendto(_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + request, (0, 0))
        answer = kernel.recv(4096)
    if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:  # an error message: there is no such socket
        return None
    _, state, _, _, local_port, remote_port, *_, uid = _ANSWER.unpack_from(answer, _HEADER.size)
    is_it = state == _ESTABLISHED and (local_port, remote_port) == (_port(local), _port(remote))
    return uid if is_it else None


def _port(address: Address) -> bytes:
    return address[1].to_bytes(2, "big")


def _host(address: Address) -> bytes:
    return socket.inet_aton(address[0]) + bytes(12)


@dataclass(frozen=True, slots=True)
class NodePeers:
    """The nodes of an attempt, by which a rank or their store recognizes those who may connect."""

    addresses: tuple[str, ...]  # IPv4
    owner_port: int = 0  # where each node answers
    secret: str = ""  # without one only the addresses are compared

    def to_text(self) -> str:
        return " ".join((str(self.owner_port), self.secret or "-", *self.addresses))

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Read what ``to_text`` makes; None for any other text."""
        with suppress(ValueError):
            port, secret, *addresses = text.split()
            return cls(tuple(addresses), int(port), secret.removeprefix("-"))
        return None

    def peer_uid(self, connection: socket.socket) -> int | None:
        """The user at the other end of ``connection``, which is IPv4 and comes from one of ``addresses``.

        None where it is not open there. Our own where the kernel there does not name it, as in a sandbox that forbids
        it. Raises OSError where that node does not answer.
        """
        peer = connection.getpeername()[:2]
        if not self.secret:
            return os.geteuid()
        question = json.dumps([os.urandom(16).hex(), peer[1], *connection.getsockname()[:2]])
        with socket.create_connection((peer[0], self.owner_port), TIMEOUT) as asking:
            asking.sendall(_signed(self.secret, question))
            with asking.makefile("rb") as file:
                answer = _verified(self.secret, file.readline(_MAX_LINE), question)
        if answer is None:
            raise OSError(f"{peer[0]} does not answer who has connected from its port {peer[1]}")
        uid = json.loads(answer)
        if uid == _UNKNOWN:
            return os.geteuid()
        return None if uid is None else int(uid)


class OwnerServer(socketserver.ThreadingTCPServer):
    """Server at ``address`` that answers who holds this node's end of a connection. Raises OSError for a taken port."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address: Address, secret: str) -> None:
        self.host, self.secret = address[0], secret
        super().__init__(address, _Question)
        self.port: int = self.socket.getsockname()[1]


class _Question(socketserver.StreamRequestHandler):
    server: OwnerServer
    timeout = TIMEOUT

    def handle(self) -> None:
        with suppress(OSError, ValueError, TypeError, OverflowError):  # whoever sends nonsense gets no answer
            question = _verified(self.server.secret, self.rfile.readline(_MAX_LINE))
            if question is not None:
                _, port, remote_host, remote_port = json.loads(question)
                uid = _owner((self.server.host, port), (remote_host, remote_port))
                self.wfile.write(_signed(self.server.secret, json.dumps(uid), question))


def _owner(local: Address, remote: Address) -> int | str | None:
    try:
        return uid_of(local, remote)
    except OSError:
        return _UNKNOWN


def _signed(secret: str, text: str, question: str = "") -> bytes:
    """Make a signed line; an answer is signed together with its ``question``, so that it answers no other."""
    return f"{_digest(secret, text, question)} {text}\n".encode()


def _verified(secret: str, line: bytes, question: str = "") -> str | None:
    """The text of a line that ``_signed`` made with the same secret; else None."""
    digest, _, text = line.decode(errors="replace").rstrip("\n").partition(" ")
    known = _digest(secret, text, question)
    return text if hmac.compare_digest(digest.encode(), known.encode()) else None


def _digest(secret: str, text: str, question: str) -> str:
    return hmac.new(secret.encode(), f"{question}\n{text}".encode(), _DIGEST).hexdigest()
