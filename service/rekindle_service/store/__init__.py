"""All SQL: one database, one ``Store`` that reads and writes it."""

from rekindle_service.store.job_store import Store
from rekindle_service.store.queue_store import QueueRoom
from rekindle_service.store.storage_errors import CorruptDatabaseError, QueueFullError, StorageError, UnknownCommitError

__all__ = [
    "CorruptDatabaseError",
    "QueueFullError",
    "QueueRoom",
    "StorageError",
    "Store",
    "UnknownCommitError",
]
