"""The SQLite database: its file, its upgrades, and how many threads read and write it without losing a commit."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import structlog
from sqlalchemy import Connection, Engine, create_engine, event, literal, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlmodel import Session
from sqlmodel.sql.expression import SelectOfScalar

from rekindle_service.store import migrations
from rekindle_service.store.backups import Backups, findings
from rekindle_service.store.storage_errors import CorruptDatabaseError, StorageError, UnknownCommitError

_log = structlog.get_logger(__name__)

_BUSY_SECONDS = 5
_FULL_CHECK_BYTES = 64 << 20  # above, the start would take too long: the contents of indexes are not checked
_FILES = ("", "-wal", "-shm")
_TEMPORARY = (
    *("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_READONLY"),
    *("SQLITE_NOMEM", "SQLITE_LOCKED", "SQLITE_PROTOCOL"),
)
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")
_ADVICE = "check its disk, its permissions and who else has it open"

Identity = dict[str, tuple[int, int]]
"""Device and inode by the suffix of the file."""

Row = TypeVar("Row")


class SQLiteFile:
    """One file (WAL with ``synchronous=FULL``), whose home is locked by its one server.

    SQLite does not notice that its files were removed or replaced: it writes into files that have no name any more, and
    a new connection mixes the old log with the new file. So each connection and each transaction first compares what
    is there with what was opened. The server must never open these files itself: to close them drops SQLite's locks.
    """

    def __init__(self, path: Path, backups: Backups) -> None:
        self._path = path
        self._backups = backups
        self.engine = create_engine(f"sqlite:///{path}", creator=self._connect, pool_size=20, max_overflow=30)
        """For readers, of which each transaction has one consistent view."""
        event.listen(self.engine, "begin", _on_begin)
        self.writing = self.engine.execution_options(begin="BEGIN IMMEDIATE")
        """For writers: each transaction begins when those of all other writers have ended."""
        self._opening = threading.RLock()
        self._anchor: sqlite3.Connection | None = None  # idle; no other file gets the inodes of what it has open
        self._opened: Identity = {}
        self._size = 0  # bytes; SQLite itself never makes the file smaller
        self._damage: str | None = None

    # --- connections

    def close(self) -> None:
        with self._opening:
            if self._anchor is not None:
                self._anchor.close()
            self._anchor, self._damage = None, None
        self.engine.dispose()

    def _connect(self) -> sqlite3.Connection:
        with self._opening:
            if self._anchor is None:
                self._open()
            else:
                self.guard()
            return self._connection()

    def _connection(self) -> sqlite3.Connection:
        """``mode=rw``: a file that is not there is not created, which would hide that it was removed."""
        connection = sqlite3.connect(f"{self._path.as_uri()}?mode=rw", uri=True, check_same_thread=False)
        connection.isolation_level = None  # the sqlite3 module begins no transactions of its own
        try:
            for pragma in (f"busy_timeout={_BUSY_SECONDS * 1000}", "journal_mode=WAL", "synchronous=FULL"):
                connection.execute(f"PRAGMA {pragma}")
            connection.execute("PRAGMA foreign_keys=ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self) -> None:
        """Make the first connection of this server. The files are for the owner alone."""
        try:
            os.close(os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            for file in self._files():
                with suppress(FileNotFoundError, PermissionError):
                    file.chmod(0o600)
        except OSError as error:
            raise StorageError(f"{self._path} cannot be used now ({error}): {_ADVICE}", full=False) from error
        anchor = self._connection()
        try:
            anchor.execute("SELECT count(*) FROM sqlite_master").fetchall()  # makes the log
            self._opened, self._size = self._identity(), self._path.stat().st_size
        except BaseException:
            anchor.close()
            raise
        self._anchor = anchor

    # --- what happens to the files

    def guard(self) -> None:
        """Raise StorageError where the files are not those that were opened.

        Called before and after each transaction that writes, and at each check.
        """
        if self._anchor is not None and (state := self._state()) is not None:
            raise self._error(state)

    def verify(self) -> None:
        """Read the whole file as a new process would. Raises StorageError."""
        if (state := self._state()) is not None:
            raise self._error(state)
        self._read_all()

    def _read_all(self) -> None:
        found = None
        try:
            with self._opening, closing(self._connection()) as connection:
                found = findings(connection, "quick_check")
        except sqlite3.Error as error:
            raise (self.temporary(error) or error) from error
        if found:
            self._damaged(found)
            raise self._error("damaged")

    def _state(self) -> str | None:
        """None, or what is wrong, as in ``StorageError.state``."""
        if self._damage is not None:
            return "damaged"
        try:
            present, size = self._identity(), self._path.stat().st_size
        except FileNotFoundError:
            return "removed" if not self._path.exists() else "unavailable"
        except OSError:
            return "unavailable"
        if any(present[suffix] != opened for suffix, opened in self._opened.items() if suffix in present):
            return "replaced"
        if present.keys() != self._opened.keys():
            return "removed"
        if size < self._size:
            self._verify_smaller(size)
        self._size = size
        return "damaged" if self._damage is not None else None

    def _verify_smaller(self, size: int) -> None:
        """Somebody may have called VACUUM; anything else that shrinks the file damages it. Raises StorageError."""
        if size == 0:
            self._damaged("the file was emptied")
        else:
            self._read_all()

    def _identity(self) -> Identity:
        found = {}
        for suffix, file in zip(_FILES, self._files(), strict=True):
            with suppress(FileNotFoundError):
                status = file.stat()
                found[suffix] = status.st_dev, status.st_ino
        if "" not in found:
            raise FileNotFoundError(self._path)
        return found

    def _files(self) -> list[Path]:
        return [self._path.with_name(self._path.name + suffix) for suffix in _FILES]

    def _damaged(self, finding: str) -> None:
        if self._damage is None:
            self._damage = finding
            self.engine.dispose()  # what is cached of the undamaged file would still be shown
            _log.error("The database is damaged; jobs keep running, nothing is accepted", finding=finding)

    def _error(self, state: str) -> StorageError:
        sentences = {
            "damaged": f"{self._path} is damaged ({self._damage}); jobs keep running. Stop the server: {self._cure()}",
            "replaced": f"{self._path} was replaced by another file while the server ran. Move that file away and put "
            "the server's own back; or start the server again to use that file",
            "removed": f"{self._path} or its log was removed while the server ran; jobs keep running, nothing is "
            f"accepted. Put it back where it was, or stop the server: {self._cure()}",
            "unavailable": f"{self._path} cannot be reached: {_ADVICE}",
        }
        return StorageError(sentences[state], full=False, state=state)

    # --- errors

    def check(self, connection: Connection) -> str | None:
        """What is wrong with the stored data."""
        small = self._path.stat().st_size <= _FULL_CHECK_BYTES
        return findings(connection.connection.driver_connection, "integrity_check" if small else "quick_check")

    def temporary(self, error: BaseException | None) -> StorageError | None:
        """The kinds of error that may be over later, in our words; None for any other."""
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(_DAMAGED) or (name == "SQLITE_ERROR" and "no such" in str(error)):
            self._damaged(str(error))
            return self._error("damaged")
        if not name.startswith(_TEMPORARY):
            return None
        full = name == "SQLITE_FULL"
        advice = "free some space on its disk" if full else _ADVICE
        return StorageError(f"{self._path} cannot be used now ({error}): {advice}", full=full)

    def corrupt(self, finding: str) -> CorruptDatabaseError:
        return CorruptDatabaseError(f"{self._path} is damaged ({finding}). Nothing was changed: {self._cure()}")

    def _cure(self) -> str:
        latest = self._backups.latest()
        rebuild = "rekindle rebuild makes the list of jobs again from the run directories"
        return rebuild if latest is None else f"rekindle restore {latest} uses the latest backup, or {rebuild}"


class Database:
    """Thread-safe. A commit survives a power cut; writers take turns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backups = Backups(path)
        self._file = SQLiteFile(path, self.backups)
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
        with self._session(self._file.engine) as session:
            yield session

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
                yield session
                session.commit()
                self._committed(session)
            self._check_commit()

    def _committed(self, session: Session) -> None:
        """Keep what is in memory up to date; writers call it in the order of their commits."""

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
                session.connection()  # waits for writers of other processes
                yield session
        except DBAPIError as error:
            raise (self._file.temporary(error.orig) or error) from error
        except PoolTimeoutError as error:
            raise StorageError(f"{self.path} has too many users at once: try again", full=False) from error


class StorePart:
    """A group of the questions and changes of ``Store``. Thread-safe; any method may raise StorageError."""

    def __init__(self, database: Database) -> None:
        self._database = database


def _on_begin(connection: Connection) -> None:
    """A writer takes the lock at once: a transaction that begins by reading could not wait for it later."""
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))
