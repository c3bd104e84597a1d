"""Waiting for the next event: a control message, the end of a process, a signal. It never polls."""

import os
import selectors
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rekindle.contract.run_dir.control import MAX_MESSAGE_BYTES, ControlMessage, parse_message

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


class EventLoop:
    """The only place where the keeper blocks."""

    def __init__(self, fifo: ControlFifo) -> None:
        self._fifo = fifo
        self._selector = selectors.DefaultSelector()
        self._selector.register(fifo, selectors.EVENT_READ, "message")
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
        for key, _ in self._selector.select(max(timeout, 0.0)):
            if key.data == "message":
                events.messages.extend(self._fifo.messages())
            elif key.data == "signal":
                events.signals.extend(os.read(self._wakeup, 4096))
            else:
                events.ended.append(key.data)
                self.unwatch(key.data)
        return events

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
        self._pidfds.clear()
        self._fifo.close()
