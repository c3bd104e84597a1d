"""Results that requests share: the JSON of jobs until they change, and what clients request at the same moment."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pydantic_core
from fastapi import Response
from pydantic import BaseModel

from rekindle_service.store import Store
from rekindle_service.store.job_queries import JobKey
from rekindle_service.store.tables import Job

_KEPT = 12_000  # texts, of about 1.5 kB each
T = TypeVar("T")
Render = Callable[[Job], BaseModel]

_MAX_AGE = 0.1  # seconds that a result may be reused
_EVICTION_INTERVAL = 5.0  # seconds; results that old are dropped


class JobJson:
    """Thread-safe. Reading a row and rendering it takes most of the time of a list, and most rows have not changed."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Render, str], tuple[int, bytes]] = (
            OrderedDict()
        )  # version, JSON; latest used last
        self._lock = threading.Lock()

    def read(self, store: Store, keys: Sequence[JobKey], render: Render) -> dict[str, bytes]:
        """What ``render`` makes of each job now, by id, in the order of ``keys``; jobs that are gone are missing."""
        found = self._look_up(keys, render)
        missing = [key.id for key in keys if key.id not in found]
        for job in store.lists.by_id(missing):
            found[job.id] = to_json(render(job))
            self._keep((render, job.id), job.version, found[job.id])
        return {key.id: found[key.id] for key in keys if key.id in found}

    def _look_up(self, keys: Sequence[JobKey], render: Render) -> dict[str, bytes]:
        found = {}
        with self._lock:
            for key in keys:
                version, json = self._kept.get((render, key.id), (None, b""))
                if version == key.version:
                    self._kept.move_to_end((render, key.id))
                    found[key.id] = json
        return found

    def _keep(self, place: tuple[Render, str], version: int, json: bytes) -> None:
        with self._lock:
            self._kept[place] = (version, json)
            self._kept.move_to_end(place)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)


def to_json(value: object) -> bytes:
    return pydantic_core.to_json(value, inf_nan_mode="null")


def spliced(response: BaseModel, **lists: Iterable[bytes]) -> Response:
    """The response with these items, JSON already, in its fields of these names."""
    fields = [
        f'"{name}":'.encode() + (b"[" + b",".join(lists[name]) + b"]" if name in lists else to_json(value))
        for name, value in response
    ]
    return Response(b"{" + b",".join(fields) + b"}", media_type="application/json")


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
