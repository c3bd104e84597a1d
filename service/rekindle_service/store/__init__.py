"""All SQL: one SQLite file, one ``Store`` that reads and writes it."""

from rekindle_service.store.database import CorruptDatabaseError, StorageError
from rekindle_service.store.job_store import Changes, Store

__all__ = ["Changes", "CorruptDatabaseError", "StorageError", "Store"]
