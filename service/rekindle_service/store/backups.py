"""Copies of the SQLite file, made while it is in use: each is one whole file that opens by itself."""

import os
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rekindle.contract.files import fsync_directory
from rekindle_service.store.errors import CorruptDatabaseError, StorageError

SCHEDULED = "scheduled"
_KEPT = 3  # of each kind that is not scheduled
_BYTES_FREE = 64 << 20  # bytes that a backup leaves free on the disk


@dataclass(frozen=True, slots=True)
class Backups:
    """Those of the database at ``database``, in the directory ``backups`` next to it: for the owner alone.

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
        _fsync(partial)
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


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
