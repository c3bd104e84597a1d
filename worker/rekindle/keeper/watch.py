"""Waiting for whatever happens next: a bell, a death, a signal. No polling; a deadline only where somebody set one."""

import os
import selectors
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rekindle.keeper.bell import ControlFifo


@dataclass(frozen=True, slots=True)
class Events:
    """What happened since the last wait."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)  # pids
    signals: list[int] = field(default_factory=list)


class Watch:
    """The keeper's one waiting place."""

    def __init__(self, bell: ControlFifo) -> None:
        self._bell = bell
        self._selector = selectors.DefaultSelector()
        self._selector.register(bell, selectors.EVENT_READ, "bell")
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

    def add(self, pid: int) -> bool:
        """Tell of the end of ``pid`` from now on; False when there is no such process (any more)."""
        if pid in self._pidfds:
            return True
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        self._pidfds[pid] = pidfd
        self._selector.register(pidfd, selectors.EVENT_READ, pid)
        return True

    def wait(self, timeout: float | None) -> Events:
        """Block until something happens, at most ``timeout`` seconds."""
        events = Events()
        for key, _ in self._selector.select(None if timeout is None else max(timeout, 0.0)):
            if key.data == "bell":
                events.messages.extend(self._bell.messages())
            elif key.data == "signal":
                events.signals.extend(os.read(self._wakeup, 4096))
            else:
                events.ended.append(key.data)
                self.forget(key.data)
        return events

    def forget(self, pid: int) -> None:
        pidfd = self._pidfds.pop(pid, None)
        if pidfd is not None:
            self._selector.unregister(pidfd)
            os.close(pidfd)

    def forget_all(self) -> None:
        for pid in list(self._pidfds):
            self.forget(pid)

    def close(self) -> None:
        """Close every descriptor; in a forked child too, where the keeper's must not stay open.

        Nothing is unregistered first: parent and child share one epoll set, and the parent would become deaf.
        """
        self._selector.close()
        for pidfd in self._pidfds.values():
            os.close(pidfd)
        self._pidfds.clear()
        os.close(self._wakeup)
        os.close(self._wakeup_writer)
        self._bell.close()
