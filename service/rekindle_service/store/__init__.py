"""All SQL: one database, one ``Store`` that reads and writes it."""

from rekindle_service.store.change_feed import Changes
from rekindle_service.store.errors import CorruptDatabaseError, QueueFullError, StorageError, UnknownCommitError
from rekindle_service.store.job_store import Store
from rekindle_service.store.queue_store import QueueRoom

__all__ = [
    "Changes",
    "CorruptDatabaseError",
    "QueueFullError",
    "QueueRoom",
    "StorageError",
    "Store",
    "UnknownCommitError",
]
