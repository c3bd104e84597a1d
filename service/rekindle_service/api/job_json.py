"""``JobJson``: the JSON of jobs in lists, kept until they change."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import pydantic_core
from fastapi import Response
from pydantic import BaseModel

from rekindle_service.store import Store
from rekindle_service.store.job_queries import JobKey
from rekindle_service.store.tables import Job

_KEPT = 4000  # jobs, of about 1.5 kB each


class JobJson:
    """Thread-safe. Reading a row and rendering it takes most of the time of a list, and most rows have not changed."""

    def __init__(self, render: Callable[[Job], BaseModel]) -> None:
        self._render = render
        self._kept: OrderedDict[str, tuple[int, bytes]] = OrderedDict()  # by id: version and JSON, latest used last
        self._lock = threading.Lock()

    def read(self, store: Store, keys: Sequence[JobKey]) -> dict[str, bytes]:
        """By id, in the order of ``keys``, as of now; jobs that are gone since are missing."""
        found = self._look_up(keys)
        missing = [key.id for key in keys if key.id not in found]
        found |= {job.id: self._rendered(job) for job in store.lists.by_id(missing)}
        return {key.id: found[key.id] for key in keys if key.id in found}

    def _look_up(self, keys: Sequence[JobKey]) -> dict[str, bytes]:
        found = {}
        with self._lock:
            for key in keys:
                version, json = self._kept.get(key.id, (None, b""))
                if version == key.version:
                    self._kept.move_to_end(key.id)
                    found[key.id] = json
        return found

    def _rendered(self, job: Job) -> bytes:
        json = to_json(self._render(job))
        with self._lock:
            self._kept[job.id] = (job.version, json)
            self._kept.move_to_end(job.id)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return json


def to_json(value: object) -> bytes:
    return pydantic_core.to_json(value, inf_nan_mode="null")


def spliced(response: BaseModel, **lists: Iterable[bytes]) -> Response:
    """``response`` with these items in its fields of that name."""
    fields = [
        f'"{name}":'.encode() + (b"[" + b",".join(lists[name]) + b"]" if name in lists else to_json(value))
        for name, value in response
    ]
    return Response(b"{" + b",".join(fields) + b"}", media_type="application/json")
