"""Locks for requests that a client repeats while the first is in flight: the repeat waits for the first."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class IdempotencyLocks:
    """Requests with the same idempotency key are processed one at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._in_flight: set[str] = set()

    @contextmanager
    def lock(self, key: str | None) -> Iterator[None]:
        """Wait until no other request with ``key`` is in flight; without a key there is nothing to wait for."""
        if key is None:
            yield
            return
        with self._changed:
            self._changed.wait_for(lambda: key not in self._in_flight)
            self._in_flight.add(key)
        try:
            yield
        finally:
            with self._changed:
                self._in_flight.remove(key)
                self._changed.notify_all()
