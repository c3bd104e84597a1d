"""Waiting for the next event: a control message, the end of a process, a signal, a socket, a time. It never polls."""

import os
import selectors
import signal
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rekindle.contract.run_dir.control_messages import MAX_MESSAGE_BYTES, ControlMessage, parse_message

_MAX_READ = 1 << 20  # bytes per call: a script that sends messages without end must not keep the keeper from its work


class ControlFifo:
    """The keeper's end of the control FIFO; reads from construction to ``close``.

    Every message sent meanwhile arrives, unless a flood fills the FIFO: then the ranks' files show the rest.
    """

    def __init__(self, path: Path) -> None:
        if os.path.lexists(path) and not stat.S_ISFIFO(path.lstat().st_mode):
            path.unlink()
        if not os.path.lexists(path):
            os.mkfifo(path, 0o600)
        # Read and write: a FIFO with no writer left would otherwise report end of file for ever.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._pending = b""
        self.messages()  # sent to an earlier keeper
        self._pending = b""

    def fileno(self) -> int:
        return self._fd

    def messages(self) -> list[ControlMessage]:
        """The valid messages that arrived since the last call; never blocks."""
        with suppress(BlockingIOError):
            while len(self._pending) < _MAX_READ:
                self._pending += os.read(self._fd, 65536)
        *lines, self._pending = self._pending.split(b"\n")
        if len(self._pending) > MAX_MESSAGE_BYTES:
            self._pending = b""
        return [message for line in lines if (message := parse_message(line)) is not None]

    def close(self) -> None:
        os.close(self._fd)


@dataclass(frozen=True, slots=True)
class Events:
    """What happened since the last wait."""

    messages: list[ControlMessage] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)  # pids
    signals: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Timer:
    interval: float  # seconds
    action: Callable[[], None]
    due: float  # seconds of CLOCK_MONOTONIC


class EventLoop:
    """The only place where the keeper blocks. Actions of sockets and timers run in ``wait``, and must not call it."""

    def __init__(self, fifo: ControlFifo | None = None) -> None:
        self._selector = selectors.DefaultSelector()
        self._fifo: ControlFifo | None = None
        if fifo is not None:
            self.replace_fifo(fifo)
        self._sockets: dict[socket.socket, Callable[[], None]] = {}
        self._timers: list[_Timer] = []
        self._added: list[ControlMessage] = []
        self._pidfds: dict[int, int] = {}
        self._wakeup, self._wakeup_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wakeup, selectors.EVENT_READ, "signal")

    @contextmanager
    def signals(self, *numbers: int) -> Iterator[None]:
        """Turn ``numbers`` into events for as long as the context lasts."""
        signal.set_wakeup_fd(self._wakeup_writer, warn_on_full_buffer=False)
        before = {number: signal.signal(number, lambda *_: None) for number in numbers}
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)

    def watch(self, pid: int) -> bool:
        """Report the end of ``pid`` from now on; False when there is no such process (any more)."""
        if pid in self._pidfds:
            return True
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        self._pidfds[pid] = pidfd
        self._selector.register(pidfd, selectors.EVENT_READ, pid)
        return True

    def wait(self, timeout: float) -> Events:
        """Block until something happens, at most ``timeout`` seconds."""
        events = Events()
        timeout = 0.0 if self._added else timeout
        due_in = min((timer.due for timer in self._timers), default=float("inf")) - time.monotonic()
        for key, _ in self._selector.select(max(min(timeout, due_in), 0.0)):
            if isinstance(key.data, ControlFifo):
                events.messages.extend(key.data.messages())
            elif key.data == "signal":
                events.signals.extend(os.read(self._wakeup, 4096))
            elif isinstance(key.data, int):
                events.ended.append(key.data)
                self.unwatch(key.data)
            elif key.fileobj in self._sockets:  # not closed by the action of another one just now
                key.data()
        self.run_due()
        events.messages.extend(self._added)
        self._added = []
        return events

    def add(self, messages: list[ControlMessage]) -> None:
        """Have the next ``wait`` return ``messages`` that came by another way."""
        self._added += messages

    def run_due(self) -> None:
        """Run the actions given to ``every`` that are due: ``wait`` does so by itself."""
        now = time.monotonic()
        for timer in self._timers:
            if now >= timer.due:
                timer.due = now + timer.interval
                timer.action()

    def every(self, interval: float, action: Callable[[], None]) -> None:
        """Run ``action`` every ``interval`` seconds while the loop waits."""
        self._timers.append(_Timer(interval, action, time.monotonic() + interval))

    def watch_socket(self, sock: socket.socket, action: Callable[[], None], *, write: bool = False) -> None:
        """Run ``action`` whenever ``sock`` can be read, or with ``write`` also when it can be written."""
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if write else 0)
        change = self._selector.modify if sock in self._sockets else self._selector.register
        change(sock, mask, action)
        self._sockets[sock] = action

    def unwatch_socket(self, sock: socket.socket) -> None:
        """Watch ``sock`` no longer; call it before the socket is closed."""
        if self._sockets.pop(sock, None) is not None:
            self._selector.unregister(sock)

    def replace_fifo(self, fifo: ControlFifo) -> None:
        """Read ``fifo`` from now on, and no longer the one before."""
        if self._fifo is not None:
            self._selector.unregister(self._fifo)
            self._fifo.close()
        self._fifo = fifo
        self._selector.register(fifo, selectors.EVENT_READ, fifo)

    def unwatch(self, *pids: int) -> None:
        """Report the end of ``pids`` no more; of all processes, where none is given."""
        for pid in pids or list(self._pidfds):
            if (pidfd := self._pidfds.pop(pid, None)) is not None:
                self._selector.unregister(pidfd)
                os.close(pidfd)

    def close(self) -> None:
        """Close every descriptor; in a forked child too, where the keeper's must not stay open.

        Nothing is unregistered first: parent and child share one epoll set, and the parent would miss all events.
        """
        self._selector.close()
        for fd in (*self._pidfds.values(), self._wakeup, self._wakeup_writer):
            os.close(fd)
        for sock in self._sockets:
            sock.close()
        self._pidfds.clear()
        self._sockets.clear()
        if self._fifo is not None:
            self._fifo.close()
