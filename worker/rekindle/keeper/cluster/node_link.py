"""A node's keeper and its leader: what the leader has decided, and whether it still hears this node."""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.leader_records import Leader
from rekindle.keeper.cluster.channel import Channel
from rekindle.keeper.cluster.messages import (
    Beat,
    Heard,
    Hello,
    Message,
    RecordWritten,
    Welcome,
)
from rekindle.keeper.event_loop import EventLoop

BEAT_INTERVAL = 1.0  # seconds
_ANSWER_TIMEOUT = 3.0  # seconds without an answer, after which the heartbeat tries another connection
_CONNECT_TIMEOUT = 20.0  # seconds


class LeaderLostError(Exception):
    """The leading keeper has ended, or does not hear this node any more: its ranks must end."""


class NodeLink:
    """The connection for messages, for as long as both ends live, and a second one for the heartbeat.

    After a cut, TCP sends again only after as long a pause; so the heartbeat comes on a fresh connection then, and
    nothing is lost on the old one.
    """

    def __init__(self, leader: Leader, hello: Hello, events: EventLoop, source: str | None = None) -> None:
        """``source``: the local address to connect from. Raises OSError where the leader does not answer."""
        self._leader, self._hello, self._events, self._source = leader, hello, events, source
        self._on_message: Callable[[Message], None] = lambda _: None
        sock = socket.create_connection((leader.address, leader.port), _CONNECT_TIMEOUT, self._from())
        self.address = str(sock.getsockname()[0])
        self._channel = Channel(sock, events, self._receive, self._lose)
        self._channel.trust()
        self._channel.send(hello)
        self._lease: float | None = None  # seconds, known once the leader welcomes this node
        self._beats: Channel | None = None
        self._number = 0
        self._sent: dict[int, float] = {}
        self._heard_at = self._tried_at = time.monotonic()
        events.every(BEAT_INTERVAL, self._beat)

    def _from(self) -> tuple[str, int] | None:
        return None if self._source is None else (self._source, 0)

    def attend(self, on_message: Callable[[Message], None]) -> None:
        """Who handles messages from now on; called while the event loop waits."""
        self._on_message = on_message

    def send(self, message: Message) -> None:
        self._channel.send(message)

    @property
    def is_welcome(self) -> bool:
        return self._lease is not None

    def close(self) -> None:
        self._channel.close()
        if self._beats is not None:
            self._beats.close()

    def _receive(self, message: Message) -> None:
        if isinstance(message, Welcome):
            self._lease = message.lease
            self._heard_at = time.monotonic()
        else:
            self._on_message(message)

    def _lose(self, reason: str) -> None:
        raise LeaderLostError(f"the leading keeper has ended, or has dropped this node: {reason}")

    def _beat(self) -> None:
        """Raises LeaderLostError where the last heartbeat that the leader has answered was sent too long ago."""
        now = time.monotonic()
        if self._lease is None:
            return
        if now > self._heard_at + self._lease:
            raise LeaderLostError(f"the leading keeper has not answered for {now - self._heard_at:.0f} seconds")
        silent_for = now - max(self._heard_at, self._tried_at)
        if self._beats is None or not self._beats.is_open or silent_for > _ANSWER_TIMEOUT:
            self._reconnect(now)
        self._number += 1
        self._sent[self._number] = now
        if self._beats is not None:
            self._beats.send(Beat(self._number, now))

    def _reconnect(self, now: float) -> None:
        if self._beats is not None:
            self._beats.close()
        self._tried_at, self._beats = now, None
        sock = socket.socket()
        sock.setblocking(False)
        with suppress(BlockingIOError, OSError):
            if (source := self._from()) is not None:
                sock.bind(source)
            sock.connect((self._leader.address, self._leader.port))
        self._beats = Channel(sock, self._events, self._hear, lambda _: None)
        self._beats.send(Hello(self._hello.secret, self._hello.host, self._hello.keeper, beat=True))

    def _hear(self, message: Message) -> None:
        """The lease runs from when the answered heartbeat was sent: the leader has heard this node since then."""
        if isinstance(message, Heard) and (sent := self._sent.get(message.number)) is not None:
            self._heard_at = max(self._heard_at, sent)
            self._sent = {number: at for number, at in self._sent.items() if number > message.number}


class LinkJournal:
    """The journal of an attempt on a node: records are sent to the leading keeper, which writes the journal."""

    def __init__(self, link: NodeLink, attempt: int) -> None:
        self._link, self._attempt = link, attempt

    def write_nowait(self, record_type: RecordType, **fields: Any) -> None:
        fields.pop("attempt", None)
        self._link.send(RecordWritten(self._attempt, record_type, fields))
