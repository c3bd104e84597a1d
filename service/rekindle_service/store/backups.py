"""Copies of the SQLite file, made while it is in use, and the thread that makes them and checks the file.

Each copy is one whole file that opens by itself.
"""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from rekindle.contract.files import fsync_directory
from rekindle_service.periodic_thread import PeriodicThread
from rekindle_service.store.storage_errors import CorruptDatabaseError, StorageError

_log = structlog.get_logger(__name__)

SCHEDULED = "scheduled"
_KEPT = 3  # of each kind that is not scheduled
_BYTES_FREE = 64 << 20  # bytes that a backup leaves free on the disk

_CHECK_INTERVAL = 5.0  # seconds
_VERIFY_INTERVAL = 300.0  # seconds, at least; the whole file is read
_VERIFY_SHARE = 100  # the time between two verifications is at least so many times that of one
_FIRST_BACKUP = 600.0  # seconds after the start of a server that finds none
_RETRY_BACKUP = 600.0  # seconds


@dataclass(frozen=True, slots=True)
class Backups:
    """The backups of the database at ``database``, in the directory ``backups`` next to it: for the owner alone.

    A name has the time and the kind: ``rekindle-20260102T030405.000006Z-scheduled.db``.
    """

    database: Path

    @property
    def directory(self) -> Path:
        return self.database.parent / "backups"

    def make(self, kind: str, keep: int = _KEPT) -> Path:
        """A new one; of its kind ``keep`` remain. Raises StorageError."""
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(f"no backup can be made in {self.directory} ({error})", full=False) from error
        now = datetime.fromtimestamp(time.time(), UTC)
        target = self.directory / f"rekindle-{now:%Y%m%dT%H%M%S.%f}Z-{kind}.db"
        back_up(self.database, target)
        for old in self.of_kind(kind)[keep:]:
            old.unlink(missing_ok=True)
        return target

    def of_kind(self, kind: str = "*") -> list[Path]:
        """Latest first."""
        return sorted(self.directory.glob(f"rekindle-*Z-{kind}.db"), reverse=True)

    def latest(self) -> Path | None:
        return next(iter(self.of_kind()), None)


def back_up(database: Path, target: Path) -> None:
    """Copy a database that others may use at the same time to the new file ``target``. Raises StorageError."""
    try:
        size = sum(file.stat().st_size for file in database.parent.glob(f"{database.name}*") if file.is_file())
        status = os.statvfs(target.parent)
        if status.f_bavail * status.f_frsize < size + _BYTES_FREE:
            raise StorageError(f"{target} was not written: its disk has too little space left", full=True)
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True)) as source:
            copy_database(source, target)
    except (OSError, sqlite3.Error) as error:
        full = getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"
        raise StorageError(
            f"{target} could not be written ({error}): check its disk and the database", full=full
        ) from error


def copy_database(source: sqlite3.Connection, target: Path) -> None:
    """One consistent state of ``source``: checked, durable, whole or not at all. Raises OSError and sqlite3.Error."""
    partial = target.with_name(f".{target.name}.partial")
    try:
        partial.unlink(missing_ok=True)  # what somebody else has put there would be written through, or be theirs
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # else it would come with two more files
            if found := findings(copy, "integrity_check"):
                raise sqlite3.DatabaseError(f"the copy is damaged: {found}")
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.rename(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    fsync_directory(target.parent)


def require_database(path: Path) -> None:
    """Raises CorruptDatabaseError where ``path`` is no undamaged database of rekindle."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            found = findings(connection, "integrity_check")
            connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error as error:
        found = str(error)
    if found:
        raise CorruptDatabaseError(f"{path} is no backup of rekindle's database ({found})")


def findings(connection: Any, check: str) -> str | None:
    """What ``integrity_check`` or ``quick_check`` finds, None for nothing."""
    rows = [str(row[0]) for row in connection.execute(f"PRAGMA {check}(3)")]
    return None if rows == ["ok"] else "; ".join(row.replace("\n", ": ") for row in rows)


class Maintenance:
    """The thread that looks after the database while a server runs: is it there, is it whole, is a backup due.

    ``check`` and ``verify`` are those of the database. ``backup_hours`` 0 makes no backups; ``kept`` scheduled ones
    remain.
    """

    def __init__(
        self,
        check: Callable[[], None],
        verify: Callable[[], None],
        backups: Backups,
        backup_hours: float,
        kept: int,
    ) -> None:
        self._check_files, self._verify_content, self._backups = check, verify, backups
        self._backup_seconds, self._kept = backup_hours * 3600, kept
        self._thread = PeriodicThread("database", self.run_due, _CHECK_INTERVAL, "The database needs attention")
        self._verify_at = time.monotonic() + _VERIFY_INTERVAL
        self._backup_at = time.monotonic() + self._first_backup()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._thread.close()

    def run_due(self) -> None:
        """One round. What fails is shown by whatever uses the database, too."""
        self._check_files()
        if time.monotonic() >= self._verify_at:
            self._verify()
        if self._backup_seconds and time.monotonic() >= self._backup_at:
            self._back_up()

    def _verify(self) -> None:
        started = time.monotonic()
        self._verify_content()
        self._verify_at = time.monotonic() + max(_VERIFY_INTERVAL, _VERIFY_SHARE * (time.monotonic() - started))

    def _back_up(self) -> None:
        self._backup_at = time.monotonic() + _RETRY_BACKUP
        path = self._backups.make(SCHEDULED, self._kept)
        self._backup_at = time.monotonic() + self._backup_seconds
        _log.info("The database was backed up", path=str(path))

    def _first_backup(self) -> float:
        """Seconds until the first: when the latest of an earlier server is old enough."""
        latest = next(iter(self._backups.of_kind(SCHEDULED)), None)
        with suppress(OSError):
            if latest is not None:
                age = max(0.0, time.time() - latest.stat().st_mtime)
                return max(_FIRST_BACKUP if age > self._backup_seconds else 0.0, self._backup_seconds - age)
        return _FIRST_BACKUP
