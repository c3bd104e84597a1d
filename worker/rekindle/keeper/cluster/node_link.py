"""A node's keeper and its leader: what the leader has decided, and whether it still hears this node."""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.leader_records import Leader
from rekindle.keeper.cluster.channel import Channel
from rekindle.keeper.cluster.home_proof import HomeProof
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
_ANSWER_TIMEOUT = 2.0  # seconds without an answer, after which each heartbeat tries a further connection
_MAX_CONNECTIONS = 6  # of the heartbeat
_CONNECT_TIMEOUT = 20.0  # seconds


class LeaderLostError(Exception):
    """The leading keeper has ended, or does not hear this node any more: its ranks must end."""


class NodeLink:
    """The connection for messages, for as long as both ends live, and a second one for the heartbeat.

    After a cut, TCP sends again only after as long a pause; so the heartbeat comes on a fresh connection, too, then.
    The first one that is answered stays: where packets are lost, that may be an old one.
    """

    def __init__(
        self, leader: Leader, hello: Hello, proof: HomeProof, events: EventLoop, source: str | None = None
    ) -> None:
        """``source``: the local address to connect from. Raises OSError where the leader does not answer."""
        self._leader, self._hello, self._events, self._source = leader, hello, events, source
        self._proof = proof
        self._on_message: Callable[[Message], None] = lambda _: None
        sock = socket.create_connection((leader.address, leader.port), _CONNECT_TIMEOUT, self._from())
        self.address = str(sock.getsockname()[0])
        self._channel = Channel(sock, events, self._receive, self._lose)
        self._channel.trust()
        self._channel.send(hello)
        self._lease: float | None = None  # seconds, known once the leader welcomes this node
        self._beats: list[Channel] = []
        self._number = 0
        self._sent: dict[int, float] = {}
        self._heard_at = time.monotonic()
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
        for channel in self._beats:
            channel.close()

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
        self._beats = [channel for channel in self._beats if channel.is_open]
        if not self._beats or now > self._heard_at + _ANSWER_TIMEOUT:
            self._connect_again()
        self._number += 1
        self._sent[self._number] = now
        trouble = self._proof.trouble()
        for channel in self._beats:
            channel.send(Beat(self._number, now, self._proof.written, trouble))

    def _connect_again(self) -> None:
        if len(self._beats) >= _MAX_CONNECTIONS:
            self._beats.pop(0).close()
        sock = socket.socket()
        sock.setblocking(False)
        with suppress(BlockingIOError, OSError):
            if (source := self._from()) is not None:
                sock.bind(source)
            sock.connect((self._leader.address, self._leader.port))
        channel = Channel(sock, self._events, lambda message: self._hear(channel, message), lambda _: None)
        channel.send(Hello(self._hello.secret, self._hello.host, self._hello.keeper, beat=True))
        self._beats.append(channel)

    def _hear(self, channel: Channel, message: Message) -> None:
        """The lease runs from when the answered heartbeat was sent: the leader has heard this node since then."""
        if isinstance(message, Heard) and (sent := self._sent.get(message.number)) is not None:
            self._heard_at = max(self._heard_at, sent)
            self._sent = {number: at for number, at in self._sent.items() if number > message.number}
            for other in self._beats:
                if other is not channel:
                    other.close()


class LinkJournal:
    """The journal of an attempt on a node: records are sent to the leading keeper, which writes the journal."""

    def __init__(self, link: NodeLink, attempt: int) -> None:
        self._link, self._attempt = link, attempt

    def write_nowait(self, record_type: RecordType, **fields: Any) -> None:
        fields.pop("attempt", None)
        self._link.send(RecordWritten(self._attempt, record_type, fields))
