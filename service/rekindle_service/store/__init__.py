"""All SQL: one database, one ``Store`` that reads and writes it."""

from rekindle_service.store.errors import CorruptDatabaseError, StorageError, UnknownCommitError
from rekindle_service.store.job_store import Changes, Store

__all__ = ["Changes", "CorruptDatabaseError", "StorageError", "Store", "UnknownCommitError"]
