"""How the coordinator and the keepers of the nodes reach each other: messages, heartbeats, and proofs in the home."""

import errno
import hmac
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Never

from rekindle.contract.files import read_json, why_unwritable, write_json
from rekindle.contract.processes import die_with_parent, set_process_name
from rekindle.contract.run_dir.coordinator_records import Coordinator
from rekindle.contract.run_dir.journal import RecordType
from rekindle.keeper.cluster.messages import (
    MAX_HELLO_BYTES,
    MAX_MESSAGE_BYTES,
    Beat,
    BeatAnswer,
    Message,
    NodeHello,
    RecordWritten,
    Welcome,
    decode,
    encode,
)
from rekindle.keeper.event_loop import EventLoop

BEAT_INTERVAL = 1.0  # seconds
PROOF_INTERVAL = 3.0  # seconds between two proofs of a node
_CHUNK = 1 << 16
_WAITING = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EINPROGRESS, errno.EINTR}
_BACKLOG = 1024
_MAX_GUESTS = 256  # connections that have not shown the secret yet
_GUEST_TIMEOUT = 10.0  # seconds
_ANSWER_TIMEOUT = 2.0  # seconds without an answer, after which each heartbeat tries a further connection
_MAX_CONNECTIONS = 6  # of the heartbeat
_CONNECT_TIMEOUT = 20.0  # seconds
_STUCK = 30.0  # seconds after which a proof that is being written counts as failed


class MessageChannel:
    """One connection, until either end closes it: messages are lines, sent without ever waiting for the peer."""

    def __init__(
        self,
        sock: socket.socket,
        events: EventLoop,
        on_message: Callable[[Message], None],
        on_close: Callable[[str], None],
    ) -> None:
        """``on_close`` is called with the reason, once, unless this end closes it."""
        self._sock, self._events = sock, events
        self._on_message, self._on_close = on_message, on_close
        self._max_bytes = MAX_HELLO_BYTES
        self._incoming, self._outgoing = bytearray(), bytearray()
        self.is_open = True
        sock.setblocking(False)
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        events.watch_socket(sock, self._on_ready)

    @property
    def peer(self) -> str:
        """The peer's address. Raises OSError where it has gone."""
        return str(self._sock.getpeername()[0])

    def trust(self) -> None:
        """Take longer lines: the peer has shown who it is."""
        self._max_bytes = MAX_MESSAGE_BYTES

    def redirect(self, on_message: Callable[[Message], None], on_close: Callable[[str], None]) -> None:
        """Hand what follows to others."""
        self._on_message, self._on_close = on_message, on_close

    def send(self, message: Message) -> None:
        """Never blocks; what the peer does not take yet is kept. Nothing happens once the channel is closed."""
        if self.is_open:
            self._outgoing += encode(message)
            self._flush()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._events.unwatch_socket(self._sock)
            self._sock.close()

    def _on_ready(self) -> None:
        self._flush()
        self._receive()

    def _flush(self) -> None:
        had_more = bool(self._outgoing)
        try:
            while self._outgoing:
                del self._outgoing[: self._sock.send(self._outgoing)]
        except OSError as error:
            if error.errno not in _WAITING:
                self._fail(error)
                return
        if had_more:
            self._events.watch_socket(self._sock, self._on_ready, write=bool(self._outgoing))

    def _receive(self) -> None:
        try:
            while self.is_open and (data := self._sock.recv(_CHUNK)):
                self._incoming += data
                if b"\n" in data or len(self._incoming) > self._max_bytes:
                    self._deliver()
            if self.is_open:
                self._fail(None)
        except OSError as error:
            if error.errno not in _WAITING:
                self._fail(error)

    def _deliver(self) -> None:
        *lines, rest = self._incoming.split(b"\n")
        self._incoming = rest
        for line in lines:
            if not self.is_open:
                return
            if len(line) > self._max_bytes or (message := decode(bytes(line))) is None:
                self._fail(None, "it has sent something else than a message")
                return
            self._on_message(message)
        if len(self._incoming) > self._max_bytes:
            self._fail(None, f"it has sent a message of more than {self._max_bytes} bytes")

    def _fail(self, error: OSError | None, reason: str = "the connection was closed") -> None:
        if self.is_open:
            self.close()
            self._on_close(reason if error is None else f"the connection failed: {error.strerror or error}")


class Listener:
    """Where the keepers of the nodes connect to: at one address, and only with the secret of the launch."""

    def __init__(
        self, address: str, secret: str, events: EventLoop, on_hello: Callable[[MessageChannel, NodeHello], None]
    ) -> None:
        """Each connection that begins with a valid ``NodeHello`` is handed to ``on_hello``, which must redirect it.

        Raises OSError where nothing can listen at ``address``.
        """
        self._secret, self._events, self._on_hello = secret, events, on_hello
        self._guests: dict[MessageChannel, float] = {}  # that have not shown the secret yet; with seconds of accept
        self._socket = socket.create_server((address, 0), backlog=_BACKLOG)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        events.watch_socket(self._socket, self._accept)

    def close(self) -> None:
        for guest in self._guests:
            guest.close()
        self._events.unwatch_socket(self._socket)
        self._socket.close()

    def _accept(self) -> None:
        try:
            sock = self._socket.accept()[0]
        except OSError:
            return
        self._drop_silent()
        if len(self._guests) >= _MAX_GUESTS:
            sock.close()
            return
        guest = MessageChannel(
            sock,
            self._events,
            lambda message: self._greet(guest, message),
            lambda _: self._forget(guest),
        )
        self._guests[guest] = time.monotonic()

    def _drop_silent(self) -> None:
        for guest, since in list(self._guests.items()):
            if time.monotonic() > since + _GUEST_TIMEOUT:
                guest.close()
                self._forget(guest)

    def _forget(self, guest: MessageChannel) -> None:
        self._guests.pop(guest, None)

    def _greet(self, guest: MessageChannel, message: Message) -> None:
        self._forget(guest)
        if isinstance(message, NodeHello) and hmac.compare_digest(message.secret.encode(), self._secret.encode()):
            guest.trust()
            self._on_hello(guest, message)
        else:
            guest.close()


class HomeProof:
    """Proof of this node that it can write the run directory, where other nodes see it.

    A child writes: where a network file system does not answer, a write waits for ever.
    """

    def __init__(self, path: Path, close: Callable[[], None]) -> None:
        """Write the first proof. ``close`` closes in the child what only the keeper may keep open.

        Raises OSError where nothing can be written; a full disk is no such reason.
        """
        self._path, self._close = path, close
        self.written, self._error = 1, _write_proof(path, 1) or ""
        if self._error:
            raise OSError(self._error)
        self._fork()

    def _fork(self) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._written_at, keeper = time.monotonic(), os.getpid()
        if not (pid := os.fork()):
            self._close()
            _write_proofs(self._path, self.written, writer, keeper)
        self.pid = pid
        os.close(writer)

    def trouble(self) -> str | None:
        """Why this node cannot write there now; updates ``written``, the number of the latest proof."""
        with suppress(BlockingIOError):
            read = os.read(self._reader, 1 << 16)
            if not read:  # killed, as all processes of an attempt are at its end
                os.close(self._reader)
                self._fork()
            for line in read.decode().splitlines():
                self._written_at, (number, _, self._error) = time.monotonic(), line.partition(" ")
                self.written = int(number)
        silent = time.monotonic() - self._written_at
        stuck = f"a write to {self._path.parent} has not ended for {silent:.0f} s" if silent > _STUCK else None
        return self._error or stuck


def _write_proofs(path: Path, written: int, writer: int, keeper: int) -> Never:
    """Write proofs until SIGKILL: SIGTERM, which Slurm sends to all processes so that ranks can save, ends none."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    die_with_parent(keeper)
    set_process_name("rekindle-proof")
    while True:
        time.sleep(PROOF_INTERVAL)
        error = _write_proof(path, written + 1)
        written += error is None
        os.write(writer, f"{written} {error or ''}\n".encode())


def _write_proof(path: Path, number: int) -> str | None:
    """Write one; return why that fails, empty where only more space is needed."""
    try:
        write_json(path, {"number": number}, durable=False)
    except OSError as error:
        return why_unwritable(error, path.parent) or ""
    return None


def read_proof(path: Path) -> int:
    """The number of the latest proof of another node that is seen here; 0 before the first. Raises OSError."""
    value = read_json(path, max_bytes=4096)
    number = value.get("number") if isinstance(value, dict) else None
    return number if isinstance(number, int) else 0


class CoordinatorLostError(Exception):
    """The coordinator has ended, or gets no heartbeat of this node any more: its ranks must end."""


class NodeLink:
    """A node's connection for messages, for as long as both ends live, and a second one for the heartbeat.

    After a cut, TCP sends again only after as long a pause; so the heartbeat comes on a fresh connection, too, then.
    The first one that is answered stays: where packets are lost, that may be an old one.
    """

    def __init__(
        self, coordinator: Coordinator, hello: NodeHello, proof: HomeProof, events: EventLoop, source: str | None = None
    ) -> None:
        """``source``: the local address to connect from. Raises OSError where the coordinator does not answer."""
        self._address, self._source = (coordinator.address, coordinator.port), None if source is None else (source, 0)
        self._hello, self._proof, self._events = hello, proof, events
        self._on_message: Callable[[Message], None] = _ignore
        sock = socket.create_connection(self._address, _CONNECT_TIMEOUT, self._source)
        self._channel = MessageChannel(sock, events, self._receive, self._lose)
        self._channel.trust()
        self._channel.send(hello)
        self._lease: float | None = None  # seconds, known once the coordinator welcomes this node
        self._beats: list[MessageChannel] = []
        self._answered_at = time.monotonic()
        events.every(BEAT_INTERVAL, self._beat)

    def attend(self, on_message: Callable[[Message], None]) -> None:
        """Hand messages to ``on_message`` from now on; it is called while the event loop waits."""
        self._on_message = on_message

    def send(self, message: Message) -> None:
        self._channel.send(message)

    def write_nowait(self, record_type: RecordType, *, attempt: int = 0, **fields: Any) -> None:
        """Send a record to the coordinator, which writes the journal; see ``AttemptJournal``."""
        self.send(RecordWritten(attempt, record_type, fields))

    @property
    def is_welcome(self) -> bool:
        return self._lease is not None

    def _receive(self, message: Message) -> None:
        if isinstance(message, Welcome):
            self._lease = message.lease
            self._answered_at = time.monotonic()
        else:
            self._on_message(message)

    def _lose(self, reason: str) -> None:
        raise CoordinatorLostError(f"the coordinator has ended, or has dropped this node: {reason}")

    def _beat(self) -> None:
        """Raises CoordinatorLostError where the last heartbeat that has been answered was sent too long ago."""
        now = time.monotonic()
        if self._lease is None:
            return
        if now > self._answered_at + self._lease:
            raise CoordinatorLostError(f"the coordinator has not answered for {now - self._answered_at:.0f} seconds")
        self._beats = [channel for channel in self._beats if channel.is_open]
        if not self._beats or now > self._answered_at + _ANSWER_TIMEOUT:
            self._connect_again()
        trouble = self._proof.trouble()
        for channel in self._beats:
            channel.send(Beat(now, self._proof.written, trouble))

    def _connect_again(self) -> None:
        if len(self._beats) >= _MAX_CONNECTIONS:
            self._beats.pop(0).close()
        sock = socket.socket()
        sock.setblocking(False)
        with suppress(OSError):
            if self._source is not None:
                sock.bind(self._source)
            sock.connect(self._address)
        channel = MessageChannel(sock, self._events, lambda message: self._receive_answer(channel, message), _ignore)
        channel.send(NodeHello(self._hello.secret, self._hello.host, self._hello.keeper, beat=True))
        self._beats.append(channel)

    def _receive_answer(self, channel: MessageChannel, message: Message) -> None:
        """The lease runs from when the answered heartbeat was sent: the coordinator knows of this node since then."""
        if isinstance(message, BeatAnswer):
            self._answered_at = max(self._answered_at, message.sent)
            for other in self._beats:
                if other is not channel:
                    other.close()


def _ignore(_: object) -> None:
    """Nothing follows from this."""
