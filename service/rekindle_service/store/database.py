"""The database: how it is migrated, and read and written by many threads without losing a commit."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import structlog
from sqlalchemy import Engine, literal, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlmodel import Session
from sqlmodel.sql.expression import SelectOfScalar

from rekindle_service.store import migrations
from rekindle_service.store.backups import Backups
from rekindle_service.store.errors import CorruptDatabaseError, StorageError, UnknownCommitError
from rekindle_service.store.sqlite import SQLiteFile

_log = structlog.get_logger(__name__)

Row = TypeVar("Row")

_TURN_SECONDS = 5


class Database:
    """Thread-safe. A commit survives a power cut; writers take turns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backups = Backups(path)
        self._file = SQLiteFile(path, self.backups)
        self._engine = self._file.engine
        self._turn = threading.Lock()

    def migrate(self, *, backup: bool = True) -> None:
        """Check the database and bring its tables to this version. Raises CorruptDatabaseError and StorageError.

        ``backup``: make one before the tables are changed.
        """
        try:
            with self._file.writing.connect() as connection:
                if finding := self._file.check(connection):
                    raise self._file.corrupt(finding)
                if backup and (version := migrations.pending(connection)) is not None:
                    path = self.backups.make(f"before-{version}")
                    _log.info("The database was backed up before it is upgraded", path=str(path))
                migrations.upgrade(connection)
                connection.commit()
        except migrations.UnknownVersionError as error:
            raise CorruptDatabaseError(f"{self.path}: {error}{self._older_backup()}") from error
        except DBAPIError as error:
            found = self._file.temporary(error.orig)
            if found is None or found.state == "damaged":
                raise self._file.corrupt(str(error.orig)) from error
            raise found from error

    def _older_backup(self) -> str:
        """What else can be done after a downgrade."""
        before = next(iter(self.backups.of_kind("before-*")), None)
        return "" if before is None else f", or go back to the backup before the upgrade: rekindle restore {before}"

    def close(self) -> None:
        self._file.close()

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
                self._file.guard()
            finally:
                self._turn.release()
            session.connection()

    def rows(self, query: SelectOfScalar[Row]) -> list[Row]:
        with self.reading() as session:
            return list(session.exec(query))

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """One transaction, committed at the end unless an exception leaves it.

        Raises UnknownCommitError, a StorageError, where nobody can say whether it was committed.
        """
        with self._turn:
            self._file.guard()
            with self._session(self._file.writing) as session:
                session.connection()  # waits for writers of other processes
                yield session
                session.commit()
            self._check_commit()

    def _check_commit(self) -> None:
        """A change that was committed to a file which is not ours any more is lost, unless ours comes back."""
        try:
            self._file.guard()
        except StorageError as error:
            raise UnknownCommitError(str(error), full=error.full, state=error.state) from error

    def check(self) -> None:
        """Raises StorageError where the database cannot be read, or could not be written."""
        with self._turn:
            self._file.guard()
        with self.reading() as session:
            session.execute(select(literal(1)))

    def verify(self) -> None:
        """Read everything that is stored. Raises StorageError."""
        self._file.verify()

    @contextmanager
    def _session(self, engine: Engine) -> Iterator[Session]:
        try:
            with Session(engine, expire_on_commit=False) as session:
                yield session
        except DBAPIError as error:
            raise (self._file.temporary(error.orig) or error) from error
        except PoolTimeoutError as error:
            raise StorageError(f"{self.path} has too many users at once: try again", full=False) from error
