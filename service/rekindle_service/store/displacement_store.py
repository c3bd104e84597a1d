"""Slots that are taken from jobs or given to them while they run: on the row now, carried out by the keeper later."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from sqlmodel import Session

from rekindle.contract.states import HOLDING_SLOTS, JobIntent
from rekindle_service.store.mutations import record, set_columns
from rekindle_service.store.tables import Job

_DECIDED_FROM = ("state", "intent", "run", "devices", "wanted_devices", "displaced")


class DisplacementStore:
    """Part of ``Store``."""

    def __init__(self, changing: Callable[[], AbstractContextManager[Session]]) -> None:
        self._changing = changing

    def displace(
        self, job: Job, kind: str, reason: str, *, by: str | None = None, wanted: list[str] | None = None
    ) -> Job | None:
        """Stop ``job`` for the queue, or have its next attempt run on the slots ``wanted``; with an event of ``kind``.

        It holds both its slots and the wanted ones until its keeper's journal shows that it needs only these. ``kind``,
        ``by`` and ``reason`` are as in ``JobPublic.displaced``. None: it has changed since the row was read, and
        nothing was written.
        """
        with self._changing() as session:
            row = session.get(Job, job.id)
            if row is None or row.state not in HOLDING_SLOTS or row.intent is not JobIntent.RUN:
                return None
            if any(getattr(row, name) != getattr(job, name) for name in _DECIDED_FROM):
                return None
            before = (row.displaced or {}).get("before") or row.devices
            displaced = {"kind": kind, "by": by, "reason": reason, "at": time.time(), "before": before}
            devices = list(dict.fromkeys([*row.devices, *(wanted or [])]))
            set_columns(row, {"displaced": displaced, "wanted_devices": wanted, "devices": devices})
            row.version = record(session, row, kind, reason=reason)
            return row
