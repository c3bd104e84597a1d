"""The database: how it is opened, migrated, and written by many threads without losing a commit."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session
from sqlmodel.sql.expression import SelectOfScalar

from rekindle_service.store import migrations
from rekindle_service.store.errors import CorruptDatabaseError, StorageError, UnknownCommitError
from rekindle_service.store.postgres import PostgreSQL

Row = TypeVar("Row")

_BUSY_SECONDS = 5


class Backend(Protocol):
    """What differs between SQLite and PostgreSQL, but for the SQL that SQLAlchemy writes for each."""

    name: str
    """For messages: the path, or the URL without its password."""

    def engine(self) -> Engine:
        """For readers, of which each transaction has one consistent view."""

    def writing(self, engine: Engine) -> Engine:
        """For writers."""

    def take_turn(self, connection: Connection) -> None:
        """Wait, in a transaction that has just begun, until all other writers have ended theirs."""

    def check(self, connection: Connection) -> str | None:
        """What is wrong with the stored data."""

    def temporary(self, error: DBAPIError) -> StorageError | None:
        """What an error means that may be over later; None for any other."""

    def corrupt(self, finding: str) -> CorruptDatabaseError: ...

    def hold(self, engine: Engine) -> None:
        """Be the only server. Raises CorruptDatabaseError where another one is."""

    def release(self) -> None:
        """Undo ``hold``."""


class Database:
    """Thread-safe. A commit survives a power cut; writers take turns.

    ``url`` names a PostgreSQL database to use in place of the SQLite file at ``path``.
    """

    def __init__(self, path: Path, url: str | None = None) -> None:
        self.path = path
        self._backend: Backend = SQLite(path) if url is None else PostgreSQL(url)
        self.name = self._backend.name
        self._engine = self._backend.engine()
        self._writing = self._backend.writing(self._engine)
        self._turn = threading.Lock()

    def migrate(self) -> None:
        """Check the database and bring its tables to this version. Raises CorruptDatabaseError and StorageError."""
        try:
            with self._writing.connect() as connection:
                self._backend.take_turn(connection)
                if finding := self._backend.check(connection):
                    raise self._backend.corrupt(finding)
                migrations.upgrade(connection)
                connection.commit()
        except migrations.UnknownVersionError as error:
            raise CorruptDatabaseError(f"{self.name}: {error}") from error
        except DBAPIError as error:
            raise (self._backend.temporary(error) or self._backend.corrupt(str(error.orig))) from error

    def hold(self) -> None:
        """Be the only server of this database until ``close``. Raises CorruptDatabaseError where another one is."""
        try:
            self._backend.hold(self._engine)
        except DBAPIError as error:
            raise (self._backend.temporary(error) or error) from error

    def close(self) -> None:
        self._backend.release()
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
        """One transaction, committed at the end unless an exception leaves it.

        Raises UnknownCommitError, a StorageError, where nobody can say whether it was committed.
        """
        with self._turn, self._session(self._writing) as session:
            self._backend.take_turn(session.connection())
            yield session
            session.flush()
            self._commit(session)

    def _commit(self, session: Session) -> None:
        try:
            session.commit()
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            raise UnknownCommitError(f"{self.name}: the connection was lost during a commit", full=False) from error

    @contextmanager
    def _session(self, engine: Engine) -> Iterator[Session]:
        try:
            with Session(engine, expire_on_commit=False) as session:
                yield session
        except DBAPIError as error:
            raise (self._backend.temporary(error) or error) from error


class SQLite:
    """A ``Backend``: one file (WAL with ``synchronous=FULL``), whose home is locked by its one server."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)

    def engine(self) -> Engine:
        engine = create_engine(f"sqlite:///{self._path}", pool_size=20, max_overflow=30)
        event.listen(engine, "connect", _on_connect)
        event.listen(engine, "begin", _on_begin)
        return engine

    def writing(self, engine: Engine) -> Engine:
        return engine.execution_options(begin="BEGIN IMMEDIATE")

    def take_turn(self, connection: Connection) -> None:
        """``BEGIN IMMEDIATE`` has done it."""

    def check(self, connection: Connection) -> str | None:
        findings = [row[0] for row in connection.exec_driver_sql("PRAGMA quick_check(3)")]
        return None if findings == ["ok"] else "; ".join(finding.replace("\n", ": ") for finding in findings)

    def temporary(self, error: DBAPIError) -> StorageError | None:
        return _unavailable(self._path, error)

    def corrupt(self, finding: str) -> CorruptDatabaseError:
        return CorruptDatabaseError(
            f"{self._path} is damaged ({finding}). Move it away together with its -wal and -shm files and start again: "
            "the list of jobs is then rebuilt from the run directories"
        )

    def hold(self, engine: Engine) -> None:
        """The lock of the home does it."""

    def release(self) -> None:
        pass


def _on_connect(connection: sqlite3.Connection, _: Any) -> None:
    connection.isolation_level = None  # the sqlite3 module begins no transactions of its own
    for pragma in (f"busy_timeout={_BUSY_SECONDS * 1000}", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _on_begin(connection: Connection) -> None:
    """A writer takes the lock at once: a transaction that begins by reading could not wait for it later."""
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


def _unavailable(path: Path, error: DBAPIError) -> StorageError | None:
    """The passing kinds of trouble (a full disk, a busy file) in our words; None for any other."""
    name = getattr(error.orig, "sqlite_errorname", "")
    if not name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_READONLY")):
        return None
    full = name == "SQLITE_FULL"
    advice = "free some space on its disk" if full else "check its disk, its permissions and who else has it open"
    return StorageError(f"{path} cannot be used now ({error.orig}): {advice}", full=full)
