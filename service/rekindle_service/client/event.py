"""What the one event stream of the server tells."""

import json
from dataclasses import dataclass
from typing import Any

import httpx2


@dataclass(frozen=True, slots=True)
class Event:
    """``kind``: hello, job, deleted, and of followed jobs ranks, metrics, log; ``data`` is the JSON of that kind.

    ``version``: up to where the rows of all jobs have been told; the stream goes on behind it with ``since``.
    """

    kind: str
    data: dict[str, Any]
    version: int | None


def event_of(sent: httpx2.ServerSentEvent) -> Event:
    data: dict[str, Any] = json.loads(sent.data)
    told = sent.id or str(data.get("version", ""))
    return Event(sent.event, data, int(told) if told.isdigit() else None)
