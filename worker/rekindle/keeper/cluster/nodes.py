"""The nodes of an allocation: whose keeper answers, whose is being started, and whose is lost."""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from subprocess import Popen, TimeoutExpired
from typing import IO, Any

from rekindle.contract.backoff import exponential_backoff
from rekindle.contract.files import last_line_of
from rekindle.contract.run_dir.paths import LaunchDir
from rekindle.keeper.buffered_journal import CLOCK_TOLERANCE, journal_time
from rekindle.keeper.cluster.connections import Listener, MessageChannel, read_proof
from rekindle.keeper.cluster.messages import (
    Beat,
    BeatAnswer,
    Leave,
    Message,
    NodeHello,
    Terminated,
    Versions,
    Welcome,
)
from rekindle.keeper.cluster.node_start import PROLOGUE_FAILED
from rekindle.keeper.event_loop import EventLoop
from rekindle.keeper.keeper_environment import log

MAX_STARTS = 3  # in a row that fail: then the node is unusable
RETRY_INTERVAL = 60.0  # seconds after which an unusable node is tried again: it may be well by then
START_TIMEOUT = 300.0  # seconds: a node imports torch from whatever disk it is on
CLOSED_WAIT = 0.5  # seconds for a process whose connection has closed to end, so that its exit code is known
_MIN_DELAY, _MAX_DELAY = 1.0, 10.0  # seconds between two starts that fail
_CHECK_INTERVAL = 1.0
_LEAVE_GRACE = 20.0  # seconds for a keeper to leave
_KILL_MARGIN = 10.0  # seconds that a node has at most to kill its ranks before others take their place
_TAIL = 2000  # bytes
UNSEEN_MARGIN = 30.0
"""Seconds beyond ``host_timeout`` for a proof to be seen here. Earlier the server misses the beats of a coordinator
that itself sees an old home, and ends its Slurm job: the other nodes are not to blame for that."""

Starter = Callable[[str, IO[bytes]], "Popen[bytes]"]
"""Starts the keeper of the named host, whose output goes to the file; the process ends when that does."""


def lease_of(host_timeout: float) -> float:
    """Seconds after which a node whose heartbeat is not answered kills its ranks; the coordinator waits longer."""
    return max(0.75 * host_timeout, host_timeout - _KILL_MARGIN)


@dataclass(eq=False, slots=True)
class Node:
    """One keeper that answers, until it is lost."""

    host: str
    keeper: str
    address: str
    versions: Versions
    channel: MessageChannel
    beat_at: float  # seconds of CLOCK_MONOTONIC: when its latest heartbeat came
    offset: float = float("inf")  # seconds to add to the node's CLOCK_MONOTONIC; too much by the way of a message
    beats: list[MessageChannel] = field(default_factory=list)  # that the node has opened for its heartbeat
    lost: str | None = None  # how that was noticed
    lost_at: float = float("inf")
    terminated: bool = False  # it got SIGTERM
    written: int = 0  # number of the latest proof that it says it has written
    seen: int = 0  # and of the latest that was read here
    unseen_since: float = float("inf")  # seconds of CLOCK_MONOTONIC: since when the two differ
    ahead: float = 0.0  # seconds of its time of day before that of this keeper
    on_message: Callable[[Message], None] = field(default=lambda _: None)

    def send(self, message: Message) -> None:
        self.channel.send(message)

    def lose(self, reason: str) -> None:
        if self.lost is None:
            self.lost, self.lost_at = reason, time.monotonic()
            for channel in (self.channel, *self.beats):
                channel.close()

    @property
    def is_alive(self) -> bool:
        return self.lost is None

    def silent_for(self) -> float:
        """Seconds since the latest heartbeat."""
        return time.monotonic() - self.beat_at


@dataclass(eq=False, slots=True)
class _Host:
    """One machine of the allocation."""

    name: str
    process: "Popen[bytes] | None" = None
    output: IO[bytes] | None = None  # what the process has printed
    node: Node | None = None
    started_at: float = 0.0
    failed: int = 0  # starts in a row
    next_start: float = 0.0
    error: str = ""  # why the latest start failed
    unusable: str | None = None  # why the next Slurm job must not get it: the first reason since it was well
    was_cut_off: bool = False  # its latest keeper was lost because no heartbeat came

    @property
    def answers(self) -> bool:
        """True where its keeper answers, with a proof that it writes where this keeper reads."""
        node = self.node
        return node is not None and node.is_alive and not node.terminated and node.seen > 0

    @property
    def is_settled(self) -> bool:
        """True where it answers, is known to be unusable, or no keeper could be started there lately."""
        return self.answers or bool(self.unusable) or self.failed >= MAX_STARTS

    @property
    def why_missing(self) -> str:
        lost = None if self.node is None else self.node.lost
        return self.unusable or lost or self.error or "its keeper has not answered yet"

    def mark_unusable(self, reason: str) -> None:
        self.unusable = self.unusable or reason
        self.next_start = time.monotonic() + RETRY_INTERVAL


class Nodes:
    """All machines of the allocation, in Slurm's order."""

    def __init__(
        self,
        hosts: Sequence[str],
        starter: Starter,
        address: str,
        secret: str,
        events: EventLoop,
        host_timeout: float,
        launch: LaunchDir,
    ) -> None:
        """``host_timeout``: seconds without a heartbeat after which a node counts as lost. Raises OSError."""
        self._hosts = {host: _Host(host) for host in hosts}
        self._starter, self._host_timeout, self._launch = starter, host_timeout, launch
        self._may_start = False
        self._is_ending = False  # Slurm has sent SIGTERM: that nothing can be started now is not the nodes' fault
        self.on_end: Callable[[], None] = lambda: None  # called when all that answered have got SIGTERM
        self.latest_answer = time.monotonic()  # when a keeper was admitted last
        self._listener = Listener(address, secret, events, self._greet)
        self.port = self._listener.port
        events.every(_CHECK_INTERVAL, self.check)

    def answering(self) -> list[Node]:
        """The nodes in the order of the allocation, without those that are about to leave."""
        return [host.node for host in self._hosts.values() if host.node is not None and host.answers]

    def is_settled(self) -> bool:
        """True where nothing is gained by waiting for further machines."""
        return all(host.is_settled for host in self._hosts.values())

    def may_rejoin(self) -> bool:
        """True where a keeper has ended, or is being started, on a machine that is not known to be cut off."""
        return any(not host.is_settled and not host.was_cut_off for host in self._hosts.values())

    def missing(self) -> dict[str, str]:
        """The machines that cannot be used now, each with the reason."""
        return {host.name: host.why_missing for host in self._hosts.values() if not host.answers}

    def unusable(self) -> dict[str, str]:
        """The nodes that will be no better for the next Slurm job; a prologue that fails is the job's own fault."""
        found = {host.name: host.unusable for host in self._hosts.values() if host.unusable and not host.answers}
        return {name: reason for name, reason in found.items() if not reason.startswith(PROLOGUE_FAILED)}

    def report(self) -> dict[str, dict[str, Any]]:
        """Fields of ``CoordinatorBeat``."""
        ahead = {host.name: host.node.ahead for host in self._hosts.values() if host.node is not None and host.answers}
        clocks = {name: round(seconds, 1) for name, seconds in ahead.items() if abs(seconds) >= CLOCK_TOLERANCE}
        return {"clocks": clocks, "missing": self.missing(), "excluded": self.unusable()}

    def give_up_silent(self) -> None:
        """Wait no more for those that have never answered."""
        for host in self._hosts.values():
            if host.node is None and host.process is not None and not self._is_ending:
                host.mark_unusable(f"its keeper has not answered for {time.monotonic() - host.started_at:.0f} s")

    def dismiss_terminated(self) -> None:
        """Let those leave that got SIGTERM: no attempt runs."""
        for host in self._hosts.values():
            if host.node is not None and host.node.terminated:
                host.node.send(Leave(is_over=False))

    def start_missing(self) -> None:
        """Start a keeper wherever none answers and none is about to."""
        self._may_start = True
        for host in self._hosts.values():
            if host.process is None and time.monotonic() >= host.next_start:
                self._start(host)

    def check(self) -> None:
        """Find, once a second, who is lost, who has not started, and whose keeper must be replaced."""
        for host in self._hosts.values():
            node = host.node
            if node is not None and node.silent_for() > self._host_timeout:
                host.was_cut_off = True
                node.lose(f"nothing has been heard of it for {node.silent_for():.0f} seconds")
            elif node is not None and node.is_alive and node.written > node.seen:
                self._look_for_proof(host, node)
            elif node is None and host.process is not None and time.monotonic() > host.started_at + START_TIMEOUT:
                host.process.kill()
            if host.process is None:
                continue
            if (code := host.process.poll()) is not None:
                self._end(host, code)
            elif node is not None and not node.is_alive and time.monotonic() > node.lost_at + CLOSED_WAIT:
                host.process.kill()  # it must end before another keeper can be started there
        if self._may_start:
            self.start_missing()

    def close(self, *, is_over: bool) -> None:
        """Let all keepers leave; nothing is left of those that can be reached."""
        self._may_start = False
        for node in self.answering():
            node.send(Leave(is_over))
        self._listener.close()
        for host in self._hosts.values():
            if host.process is not None:
                with suppress(TimeoutExpired):
                    host.process.wait(_LEAVE_GRACE if host.node is not None else 0.0)
                host.process.kill()
                host.process.wait()

    def _look_for_proof(self, host: _Host, node: Node) -> None:
        node.unseen_since = min(node.unseen_since, time.monotonic())
        with suppress(OSError):
            node.seen = read_proof(self._launch.proof(host.name))
        if node.seen >= node.written:
            node.unseen_since = float("inf")
            host.unusable = None
        elif time.monotonic() > node.unseen_since + self._host_timeout + UNSEEN_MARGIN:
            self.give_up(node, f"what it writes into {self._launch.root} is not seen on other nodes")

    def give_up(self, node: Node, reason: str) -> None:
        """Count a node as lost whose keeper runs, and leads nowhere."""
        self._hosts[node.host].mark_unusable(reason)
        node.lose(reason)

    def _start(self, host: _Host) -> None:
        host.output = tempfile.TemporaryFile()  # noqa: SIM115  # open until the process has ended
        host.started_at = time.monotonic()
        try:
            host.process = self._starter(host.name, host.output)
        except OSError as error:
            self._fail(host, str(error))

    def _fail(self, host: _Host, error: str) -> None:
        host.error, host.failed = error, host.failed + 1
        host.next_start = time.monotonic() + exponential_backoff(host.failed, _MIN_DELAY, _MAX_DELAY)
        if host.failed >= MAX_STARTS and not self._is_ending:
            host.mark_unusable(error)

    def _end(self, host: _Host, code: int) -> None:
        """Note that the process that held a keeper has ended."""
        host.process, last = None, _last_line(host)
        if host.node is not None and host.node.is_alive:
            host.node.lose(f"its keeper has ended with exit code {code}{last and f': {last}'}")
        elif host.node is None:
            self._fail(host, _explained(last) or f"its keeper ended with exit code {code} before it had started")
        host.node = None

    def _greet(self, channel: MessageChannel, hello: NodeHello) -> None:
        host = self._hosts.get(hello.host)
        if host is None:
            channel.close()
        elif hello.beat:
            self._attach_beats(host, channel, hello)
        elif hello.versions is None or host.node is not None:
            channel.close()  # only one keeper of a node
        else:
            self._admit(host, channel, hello, hello.versions)

    def _admit(self, host: _Host, channel: MessageChannel, hello: NodeHello, versions: Versions) -> None:
        node = Node(host.name, hello.keeper, channel.peer, versions, channel, time.monotonic(), written=hello.written)
        node.ahead = hello.clock - journal_time()
        host.node, host.failed, host.error, host.was_cut_off = node, 0, "", False
        self.latest_answer = time.monotonic()
        self._look_for_proof(host, node)
        channel.redirect(lambda message: self._receive(node, message), node.lose)
        channel.send(Welcome(lease_of(self._host_timeout)))

    def _receive(self, node: Node, message: Message) -> None:
        if isinstance(message, Terminated):
            node.terminated = self._is_ending = True
            if not self.answering():
                self.on_end()
        node.on_message(message)

    def _attach_beats(self, host: _Host, channel: MessageChannel, hello: NodeHello) -> None:
        node = host.node
        if node is None or not node.is_alive or node.keeper != hello.keeper:
            channel.close()
            return
        node.beats = [*(each for each in node.beats if each.is_open), channel]
        channel.redirect(lambda message: self._receive_beat(node, channel, message), lambda _: None)

    def _receive_beat(self, node: Node, channel: MessageChannel, message: Message) -> None:
        if isinstance(message, Beat) and node.is_alive:
            now = time.monotonic()
            node.beat_at, node.offset = now, min(node.offset, now - message.sent)
            node.written = max(node.written, message.written)
            channel.send(BeatAnswer(message.sent))
            if message.trouble is not None:
                self.give_up(node, message.trouble)


def _explained(line: str) -> str:
    """Say whose module is missing, which the end of a traceback does not."""
    return f"{sys.executable}: {line}" if line.startswith(("ModuleNotFoundError", "ImportError")) else line


def _last_line(host: _Host) -> str:
    """The last line that the process has printed; the end of all goes to the log of the launch."""
    if host.output is None:
        return ""
    host.output.seek(0, 2)
    host.output.seek(max(0, host.output.tell() - _TAIL))
    lines = host.output.read().decode(errors="replace").strip().splitlines()
    host.output.close()
    for line in lines:
        log(f"{host.name}: {line}")
    own = [line for line in lines if not line.startswith(("srun: ", "slurmstepd"))]
    return last_line_of("\n".join(own or lines))
