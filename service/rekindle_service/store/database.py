"""The database: how it is opened, migrated, and written by many threads without losing a commit."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, literal, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Mapped
from sqlmodel import Session
from sqlmodel.sql.expression import SelectOfScalar

from rekindle_service.store import migrations
from rekindle_service.store.backups import Backups
from rekindle_service.store.errors import CorruptDatabaseError, StorageError, UnknownCommitError
from rekindle_service.store.postgres import PostgreSQL
from rekindle_service.store.sqlite import SQLite

Row = TypeVar("Row")

_TURN_SECONDS = 5


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

    def before_upgrade(self, connection: Connection, version: str) -> None:
        """Called where the tables are to be changed to those of ``version``. Raises StorageError."""

    def guard(self, engine: Engine) -> None:
        """Raises StorageError where a transaction that writes now could be lost."""

    def verify(self) -> None:
        """Read everything that is stored. Raises StorageError."""

    def contains(self, column: Mapped[str], part: str) -> ColumnElement[bool]:
        """Whether a text has ``part`` anywhere, upper or lower case as far as ASCII goes at least."""

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
        self.backups = Backups(path)  # of the SQLite file
        self._backend: Backend = SQLite(path, self.backups) if url is None else PostgreSQL(url)
        self.name = self._backend.name
        self._engine = self._backend.engine()
        self._writing = self._backend.writing(self._engine)
        self._turn = threading.Lock()

    def migrate(self, *, backup: bool = True) -> None:
        """Check the database and bring its tables to this version. Raises CorruptDatabaseError and StorageError.

        ``backup``: make one before the tables are changed.
        """
        try:
            with self._writing.connect() as connection:
                self._backend.take_turn(connection)
                if finding := self._backend.check(connection):
                    raise self._backend.corrupt(finding)
                if backup and (version := migrations.pending(connection)) is not None:
                    self._backend.before_upgrade(connection, version)
                migrations.upgrade(connection)
                connection.commit()
        except migrations.UnknownVersionError as error:
            raise CorruptDatabaseError(f"{self.name}: {error}{self._older_backup()}") from error
        except DBAPIError as error:
            found = self._backend.temporary(error)
            if found is None or found.state == "damaged":
                raise self._backend.corrupt(str(error.orig)) from error
            raise found from error

    def _older_backup(self) -> str:
        """What else can be done after a downgrade."""
        before = next(iter(self.backups.of_kind("before-*")), None)
        return "" if before is None else f", or go back to the backup before the upgrade: rekindle restore {before}"

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
            self._connect(session)
            yield session

    def _connect(self, session: Session) -> None:
        """A removed file is first written again, which a writer does in its turn."""
        try:
            session.connection()
        except StorageError as error:
            if error.state != "removed" or not self._turn.acquire(timeout=_TURN_SECONDS):
                raise
            try:
                self._backend.guard(self._engine)
            finally:
                self._turn.release()
            session.connection()

    def rows(self, query: SelectOfScalar[Row]) -> list[Row]:
        with self.reading() as session:
            return list(session.exec(query))

    def contains(self, column: Mapped[str], part: str) -> ColumnElement[bool]:
        return self._backend.contains(column, part)

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """One transaction, committed at the end unless an exception leaves it.

        Raises UnknownCommitError, a StorageError, where nobody can say whether it was committed.
        """
        with self._turn:
            self._backend.guard(self._engine)
            with self._session(self._writing) as session:
                self._backend.take_turn(session.connection())
                yield session
                session.flush()
                self._commit(session)
            self._check_commit()

    def _check_commit(self) -> None:
        """A change that was committed to a file which is not ours any more is lost, unless ours comes back."""
        try:
            self._backend.guard(self._engine)
        except StorageError as error:
            raise UnknownCommitError(str(error), full=error.full, state=error.state) from error

    def check(self) -> None:
        """Raises StorageError where the database cannot be read, or could not be written."""
        with self._turn:
            self._backend.guard(self._engine)
        with self.reading() as session:
            session.execute(select(literal(1)))

    def verify(self) -> None:
        """Read everything that is stored. Raises StorageError."""
        self._backend.verify()

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
        except PoolTimeoutError as error:
            raise StorageError(f"{self.name} has too many users at once: try again", full=False) from error
