"""From SQLite to PostgreSQL, when a home changes over: every row, once, in one transaction."""

from pathlib import Path

import structlog
from sqlalchemy import Connection, delete, insert, select
from sqlmodel import SQLModel, col

from rekindle_service.store.job_store import Store
from rekindle_service.store.tables import Counter

_log = structlog.get_logger(__name__)

_CHUNK = 500


def move_rows(file: Path, store: Store) -> None:
    """Copy the rows of the SQLite ``file`` to the database of ``store`` if no server has used that yet.

    The file gets another name then: going back to it would show jobs as they were. Precondition: the lock of the home.
    Raises CorruptDatabaseError for a damaged file and StorageError.
    """
    if store.recovery.starts() > 0 or not file.exists():
        return
    old = Store(file)
    try:
        old.migrate()
        with old.reading() as source, store.writing() as target:
            jobs = _copy(source.connection(), target.connection())
    finally:
        old.close()
    kept = file.rename(file.with_name(file.name + ".moved"))
    _log.info("The jobs were moved to another database", jobs=jobs, database=store.name, old=str(kept))


def _copy(source: Connection, target: Connection) -> int:
    """Returns the number of jobs."""
    copied = {}
    target.execute(delete(Counter).where(~col(Counter.name).startswith("home:")))
    for table in SQLModel.metadata.sorted_tables:
        copied[table.name] = 0
        for rows in source.execute(select(table)).mappings().partitions(_CHUNK):
            target.execute(insert(table), [dict(row) for row in rows])
            copied[table.name] += len(rows)
    return copied["job"]
