"""Reports the end of processes at once, whoever their parent is."""

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress


class ProcessEnds:
    """Any thread may call it."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        """``on_end`` is called in a thread of its own."""
        self._on_end = on_end
        self._lock = threading.Lock()
        self._watch: _Watch | None = None

    def watch(self, pid: int) -> None:
        """Call ``on_end`` when ``pid`` has ended, or at once where it just has; once for each process."""
        with self._lock:
            if self._watch is None:
                self._watch = _Watch(self._on_end)
                self._watch.start()
            self._watch.add(pid)

    def close(self) -> None:
        """Watch nothing any more. Precondition: no other thread calls ``watch``."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None


class _Watch(threading.Thread):
    """Owns its descriptors until it is stopped."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        super().__init__(name="process-ends", daemon=True)
        self._on_end = on_end
        self._lock = threading.Lock()
        self._watched: dict[int, int] = {}  # descriptor by pid
        self._epoll = select.epoll()
        self._stopping = os.eventfd(0)
        self._epoll.register(self._stopping, select.EPOLLIN)

    def add(self, pid: int) -> None:
        with self._lock, suppress(ProcessLookupError):
            if pid not in self._watched:
                self._watched[pid] = os.pidfd_open(pid)
                self._epoll.register(self._watched[pid], select.EPOLLIN)

    def stop(self) -> None:
        os.eventfd_write(self._stopping, 1)
        self.join()
        for fd in (*self._watched.values(), self._stopping):
            os.close(fd)
        self._epoll.close()

    def run(self) -> None:
        while all(self._handle(fd) for fd, _ in self._epoll.poll()):
            pass

    def _handle(self, fd: int) -> bool:
        """False where it is to stop."""
        if fd == self._stopping:
            return False
        with self._lock:
            pid = next(each for each, watched in self._watched.items() if watched == fd)
            self._epoll.unregister(fd)  # to close it is not enough while a process forked just now still has it, too
            os.close(self._watched.pop(pid))
        self._on_end()
        return True
