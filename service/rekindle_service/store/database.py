"""The SQLite file: how it is opened, migrated, and written by many threads without losing a commit."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError
from sqlmodel import Session
from sqlmodel.sql.expression import SelectOfScalar

from rekindle_service.store import migrations

Row = TypeVar("Row")

_BUSY_SECONDS = 5


class StorageError(Exception):
    """The database cannot be read or written now, but may be later; ``full`` when the disk has no space left."""

    def __init__(self, message: str, *, full: bool) -> None:
        super().__init__(message)
        self.full = full


class CorruptDatabaseError(Exception):
    """The file is damaged or is not of this version; no retry helps."""


class Database:
    """Thread-safe. A commit survives a power cut (WAL with ``synchronous=FULL``); writers take turns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._engine = create_engine(f"sqlite:///{path}", pool_size=20, max_overflow=30)
        event.listen(self._engine, "connect", _on_connect)
        event.listen(self._engine, "begin", _on_begin)
        self._writing = self._engine.execution_options(begin="BEGIN IMMEDIATE")
        self._turn = threading.Lock()

    def migrate(self) -> None:
        """Check the file and bring its tables to this version. Raises CorruptDatabaseError."""
        try:
            with self._writing.connect() as connection:
                findings = [row[0] for row in connection.exec_driver_sql("PRAGMA quick_check(3)")]
                if findings != ["ok"]:
                    raise self._corrupt("; ".join(finding.replace("\n", ": ") for finding in findings))
                migrations.upgrade(connection)
                connection.commit()
        except migrations.UnknownVersionError as error:
            raise CorruptDatabaseError(f"{self.path}: {error}") from error
        except DatabaseError as error:
            raise (_unavailable(self.path, error) or self._corrupt(str(error.orig))) from error

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """One consistent view. Rows stay usable afterwards, as plain values that nothing follows."""
        with self._session(self._engine) as session:
            yield session

    def rows(self, query: SelectOfScalar[Row]) -> list[Row]:
        with self.reading() as session:
            return list(session.exec(query))

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """One transaction, committed at the end unless an exception leaves it."""
        with self._turn, self._session(self._writing) as session:
            yield session
            session.commit()

    @contextmanager
    def _session(self, engine: Engine) -> Iterator[Session]:
        try:
            with Session(engine, expire_on_commit=False) as session:
                yield session
        except DatabaseError as error:
            raise (_unavailable(self.path, error) or error) from error

    def _corrupt(self, finding: str) -> CorruptDatabaseError:
        return CorruptDatabaseError(
            f"{self.path} is damaged ({finding}). Move it away together with its -wal and -shm files and start again: "
            "the list of jobs is then rebuilt from the run directories"
        )


def _on_connect(connection: sqlite3.Connection, _: Any) -> None:
    connection.isolation_level = None  # the sqlite3 module begins no transactions of its own
    for pragma in (f"busy_timeout={_BUSY_SECONDS * 1000}", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _on_begin(connection: Connection) -> None:
    """A writer takes the lock at once: a transaction that begins by reading could not wait for it later."""
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


def _unavailable(path: Path, error: DatabaseError) -> StorageError | None:
    """The passing kinds of trouble (a full disk, a busy file) in our words; None for any other."""
    name = getattr(error.orig, "sqlite_errorname", "")
    if not name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_READONLY")):
        return None
    full = name == "SQLITE_FULL"
    advice = "free some space on its disk" if full else "check its disk, its permissions and who else has it open"
    return StorageError(f"{path} cannot be used now ({error.orig}): {advice}", full=full)
