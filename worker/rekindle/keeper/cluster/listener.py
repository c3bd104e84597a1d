"""Where the keepers of the nodes connect to: at one address, and only with the secret of the launch."""

import hmac
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from rekindle.keeper.cluster.channel import Channel
from rekindle.keeper.cluster.messages import Hello, Message
from rekindle.keeper.event_loop import EventLoop

_BACKLOG = 1024
_MAX_GUESTS = 256  # connections that have not shown the secret yet
_GUEST_TIMEOUT = 10.0  # seconds


@dataclass(slots=True)
class _Guest:
    """A connection that has not shown the secret yet."""

    channel: Channel
    since: float  # seconds of CLOCK_MONOTONIC


class Listener:
    """Hands each connection that begins with a valid ``Hello`` to ``on_hello``, which must redirect it."""

    def __init__(
        self, address: str, secret: str, events: EventLoop, on_hello: Callable[[Channel, Hello], None]
    ) -> None:
        """Raises OSError where nothing can listen at ``address``."""
        self._secret, self._events, self._on_hello = secret, events, on_hello
        self._guests: dict[int, _Guest] = {}
        self._count = 0
        self.refused = 0
        self._socket = socket.create_server((address, 0), backlog=_BACKLOG)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        events.watch_socket(self._socket, self._accept)

    def close(self) -> None:
        for guest in list(self._guests.values()):
            guest.channel.close()
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
        self._count += 1
        number = self._count
        channel = Channel(
            sock,
            self._events,
            lambda message: self._greet(number, message),
            lambda _: self._forget(number),
        )
        self._guests[number] = _Guest(channel, time.monotonic())

    def _drop_silent(self) -> None:
        for number, guest in list(self._guests.items()):
            if time.monotonic() > guest.since + _GUEST_TIMEOUT:
                guest.channel.close()
                self._forget(number)

    def _forget(self, number: int) -> None:
        self._guests.pop(number, None)

    def _greet(self, number: int, message: Message) -> None:
        guest = self._guests.pop(number)
        known = isinstance(message, Hello) and hmac.compare_digest(message.secret.encode(), self._secret.encode())
        if not known or not isinstance(message, Hello):
            self.refused += 1
            guest.channel.close()
            return
        guest.channel.trust()
        self._on_hello(guest.channel, message)
