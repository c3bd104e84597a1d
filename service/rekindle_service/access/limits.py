"""Limits on requests per person and on attempts with a wrong token. In memory: a restart forgets them."""

import threading
import time
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

_MAX_BUCKETS = 10_000
_BURST_SECONDS = 10.0

_FAILURES_PER_MINUTE = 20.0  # from one address
_ALL_FAILURES_PER_MINUTE = 300.0


@dataclass(slots=True)
class TokenBucket:
    """Allows ``rate`` events per second, and ``burst`` at once after a pause."""

    rate: float
    burst: float
    level: float
    at: float  # seconds of CLOCK_MONOTONIC

    def take(self, now: float) -> float:
        """0 where one more event is allowed, and it is counted; else the seconds until one is."""
        self.level = min(self.burst, self.level + (now - self.at) * self.rate)
        self.at = now
        if self.level >= 1:
            self.level -= 1
            return 0.0
        return (1 - self.level) / self.rate


class RateLimit:
    """Thread-safe. One bucket for each key; the least recently used are forgotten, so memory is bounded."""

    def __init__(self, rate: float, burst: float) -> None:
        """``rate``: events per second; 0: no limit."""
        self._rate, self._burst = rate, burst
        self._buckets: OrderedDict[Hashable, TokenBucket] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, key: Hashable, now: float | None = None) -> float:
        """Count one event of ``key``; returns 0, or the seconds to wait where it exceeds the limit."""
        if not self._rate:
            return 0.0
        now = time.monotonic() if now is None else now
        with self._lock:
            bucket = self._buckets.pop(key, None) or TokenBucket(self._rate, self._burst, self._burst, now)
            self._buckets[key] = bucket
            if len(self._buckets) > _MAX_BUCKETS:
                self._buckets.popitem(last=False)
            return bucket.take(now)


class RequestLimit(RateLimit):
    """Requests of each person: ``per_second`` on average, ten seconds' worth of them at once."""

    def __init__(self, per_second: float) -> None:
        super().__init__(per_second, per_second * _BURST_SECONDS)


class FailureLimit:
    """Attempts with a wrong token, of each address and of all.

    It decides only how a wrong token is answered: the right one is accepted at any time, so nobody can lock out others
    who share an address with them, as all users of one machine or of one proxy do. Tokens have 256 random bits: no
    number of attempts finds one, and the limit only keeps those who try from filling the log.
    """

    def __init__(self) -> None:
        self._by_address = RateLimit(_FAILURES_PER_MINUTE / 60, _FAILURES_PER_MINUTE)
        self._all = RateLimit(_ALL_FAILURES_PER_MINUTE / 60, _ALL_FAILURES_PER_MINUTE)

    def wait(self, address: str) -> float:
        """Count a wrong token; returns 0, or the seconds after which the next one gets a plain answer again."""
        return max(self._by_address.wait(address), self._all.wait("all"))
