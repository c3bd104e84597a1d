"""Requests that a client repeats while the first is still being answered: the repeat waits, it does not begin again."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class IdempotencyLocks:
    """Of all requests with the same idempotency key, one at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._keys: set[str] = set()

    @contextmanager
    def lock(self, key: str | None) -> Iterator[None]:
        """Wait until no other request with ``key`` is under way; without a key there is nothing to wait for."""
        if key is None:
            yield
            return
        with self._changed:
            self._changed.wait_for(lambda: key not in self._keys)
            self._keys.add(key)
        try:
            yield
        finally:
            with self._changed:
                self._keys.remove(key)
                self._changed.notify_all()
