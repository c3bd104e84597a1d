"""One connection between the leading keeper and a node's: messages as lines, sent without ever waiting for the peer."""

import errno
import socket
from collections.abc import Callable
from contextlib import suppress

from rekindle.keeper.cluster.messages import MAX_HELLO_BYTES, MAX_MESSAGE_BYTES, Message, decode, encode
from rekindle.keeper.event_loop import EventLoop

_CHUNK = 1 << 16
_WAITING = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EINPROGRESS, errno.EINTR}


class Channel:
    """From construction until either end closes it."""

    def __init__(
        self,
        sock: socket.socket,
        events: EventLoop,
        on_message: Callable[[Message], None],
        on_close: Callable[[str], None],
        max_bytes: int = MAX_HELLO_BYTES,
    ) -> None:
        """``on_close`` is called with the reason, once, unless this end closes it.

        No line may be longer than ``max_bytes``: call ``trust`` when the peer has shown who it is.
        """
        self._sock, self._events = sock, events
        self._on_message, self._on_close = on_message, on_close
        self._max_bytes = max_bytes
        self._incoming, self._outgoing = bytearray(), bytearray()
        self.is_open = True
        sock.setblocking(False)
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        events.watch_socket(sock, self._on_ready)

    @property
    def peer(self) -> str:
        """Its address. Raises OSError where it has gone."""
        return str(self._sock.getpeername()[0])

    def trust(self) -> None:
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
