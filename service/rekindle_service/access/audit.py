"""The audit log: who changed what from where, and whose requests were refused."""

import threading
from collections import deque

import structlog

from rekindle_service.store import StorageError, Store
from rekindle_service.store.tables import AuditEntry

_log = structlog.get_logger(__name__)

_MAX_BUFFERED = 200  # refusals between two writes


class AuditLog:
    """Thread-safe.

    What a person has changed is committed before they get the answer. Refused requests cost nothing to send, so
    they are buffered, and beyond a number only counted: nobody fills the disk with them.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._refused: deque[AuditEntry] = deque()
        self._omitted = 0
        self._lock = threading.Lock()

    def record(self, entry: AuditEntry) -> None:
        """Commit ``entry``. Where the database is unavailable it is in the server's log instead."""
        try:
            self._store.access.add_audit([entry])
        except StorageError as error:
            _log.error("The audit log cannot be written", reason=str(error), **_fields(entry))

    def record_refusal(self, entry: AuditEntry) -> None:
        """Write ``entry`` at the next ``flush``."""
        with self._lock:
            if len(self._refused) < _MAX_BUFFERED:
                self._refused.append(entry)
            else:
                self._omitted += 1

    def flush(self) -> None:
        """Write the refusals so far. Raises nothing: they are in the server's log where the database is unavailable."""
        with self._lock:
            entries, omitted = list(self._refused), self._omitted
            self._refused.clear()
            self._omitted = 0
        if not entries:
            return
        if omitted:
            entries[-1].detail = f"and {omitted} more refused requests until now"
        try:
            self._store.access.add_audit(entries)
        except StorageError as error:
            _log.error("The audit log cannot be written", reason=str(error), refusals=len(entries) + omitted)


def _fields(entry: AuditEntry) -> dict[str, object]:
    return entry.model_dump(exclude={"id", "at"})
