"""Looks that many listeners share: what fifty of them want to know at the same moment is looked up once."""

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

_HOLDS = 0.1  # seconds that a look is good for
_FORGOTTEN = 5.0  # seconds after which nobody asks for it any more


@dataclass(slots=True)
class _Look:
    """What was seen, and when the look began (seconds of CLOCK_MONOTONIC); locked while somebody looks."""

    began: float = float("-inf")
    seen: Any = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Glances:
    """Thread-safe. Who waits for a look that another has begun gets that one."""

    def __init__(self) -> None:
        self._looks: dict[Hashable, _Look] = {}
        self._lock = threading.Lock()
        self._swept_at = time.monotonic()

    def at(self, what: Hashable, look: Callable[[], T], newer_than: float) -> T:
        """What ``look`` returns for ``what``, which tells it apart from all else that is looked at.

        Seen a tenth of a second ago at most, and later than ``newer_than`` (seconds of CLOCK_MONOTONIC): a listener
        that names its own last question never sees the same look twice. What ``look`` raises is raised to who looked.
        """
        kept = self._kept(what)
        with kept.lock:
            now = time.monotonic()
            if kept.began <= max(now - _HOLDS, newer_than):
                kept.seen = look()
                kept.began = now
            seen: T = kept.seen
            return seen

    def _kept(self, what: Hashable) -> _Look:
        now = time.monotonic()
        with self._lock:
            if now - self._swept_at > _FORGOTTEN:
                self._swept_at = now
                self._looks = {
                    each: kept
                    for each, kept in self._looks.items()
                    if kept.lock.locked() or now - kept.began < _FORGOTTEN
                }
            return self._looks.setdefault(what, _Look())
