"""Results shared by concurrent callers: what fifty clients request at the same moment is computed once."""

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

_MAX_AGE = 0.1  # seconds that a result may be reused
_EVICTION_INTERVAL = 5.0  # seconds; results that old are dropped


@dataclass(slots=True)
class _Entry:
    """A result and when its computation began (seconds of CLOCK_MONOTONIC); locked while it is computed."""

    started_at: float = float("-inf")
    result: Any = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class SingleFlightCache:
    """Thread-safe. A caller that finds a computation in flight waits for it and gets its result."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry] = {}
        self._lock = threading.Lock()
        self._evicted_at = time.monotonic()

    def get(self, key: Hashable, compute: Callable[[], T], not_before: float) -> T:
        """The result of ``compute`` for ``key``, at most 0.1 s old and begun after ``not_before``.

        ``not_before`` is in seconds of CLOCK_MONOTONIC: a caller that passes the time of its last call never gets the
        same result twice. What ``compute`` raises is raised to the caller that ran it.
        """
        entry = self._entry(key)
        with entry.lock:
            now = time.monotonic()
            if entry.started_at <= max(now - _MAX_AGE, not_before):
                entry.result = compute()
                entry.started_at = now
            result: T = entry.result
            return result

    def _entry(self, key: Hashable) -> _Entry:
        now = time.monotonic()
        with self._lock:
            if now - self._evicted_at > _EVICTION_INTERVAL:
                self._evicted_at = now
                self._entries = {
                    other: entry
                    for other, entry in self._entries.items()
                    if entry.lock.locked() or now - entry.started_at < _EVICTION_INTERVAL
                }
            return self._entries.setdefault(key, _Entry())
