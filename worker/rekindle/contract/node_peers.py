"""Which user of another node holds the other end of a TCP connection: its kernel is asked through a server there.

torch asks nobody who he is, and a node of a cluster may have users that the job's does not trust. Each node of an
attempt answers, at the same port, to those who know the attempt's secret, and signs what it answers.
"""

import hmac
import json
import os
import socket
import socketserver
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from rekindle.contract.socket_owner import Address, uid_of

TIMEOUT = 5.0  # seconds, for each step of asking
_MAX_LINE = 4096
_DIGEST = "sha256"
_UNKNOWN = "unknown"


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
        """None where ``text`` is not what ``to_text`` makes."""
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
    """Answers at ``address`` who holds this node's end of a connection. Raises OSError where the port is taken."""

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
    """A line; an answer is signed together with its ``question``, so that it answers no other."""
    return f"{_digest(secret, text, question)} {text}\n".encode()


def _verified(secret: str, line: bytes, question: str = "") -> str | None:
    """The text of a line that ``_signed`` made with the same secret; else None."""
    digest, _, text = line.decode(errors="replace").rstrip("\n").partition(" ")
    known = _digest(secret, text, question)
    return text if hmac.compare_digest(digest.encode(), known.encode()) else None


def _digest(secret: str, text: str, question: str) -> str:
    return hmac.new(secret.encode(), f"{question}\n{text}".encode(), _DIGEST).hexdigest()
