"""The database from a backup, or from the run directories alone, while no server runs. Nothing is deleted."""

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rekindle.contract.files import fsync_directory
from rekindle_service.config.home import Home
from rekindle_service.scheduler.recovery import Recovered, recover_on_startup
from rekindle_service.scheduler.run_sync import RunSync
from rekindle_service.store import StorageError, Store
from rekindle_service.store.backups import copy_database, require_database

_SKIPPED_VERSIONS = 1 << 32
"""More than any client can have received since the backup was made: it gets what changes from now on."""


@dataclass(frozen=True, slots=True)
class Restored:
    """``replaced``: the directory of the files that were the database until now, None where there were none."""

    jobs: int
    recovered: Recovered
    replaced: Path | None


def restore(home: Home, backup: Path) -> Restored:
    """Use ``backup`` as the database, and bring it up to date with the run directories.

    Raises HomeInUseError while a server runs, CorruptDatabaseError for a file that is no backup or is of a newer
    version, StorageError and OSError.
    """
    with _owned(home):
        require_database(backup)
        copy = home.root / ".rekindle.db.restored"
        with closing(sqlite3.connect(f"{backup.absolute().as_uri()}?mode=ro", uri=True)) as source:
            copy_database(source, copy)
        try:
            _require_version(copy)
            replaced = _move_away(home)
            copy.rename(home.database)
            fsync_directory(home.root)
        finally:
            copy.unlink(missing_ok=True)
        return _recover(home, replaced)


def rebuild(home: Home) -> Restored:
    """Make a new database from the run directories. Raises what ``restore`` raises."""
    with _owned(home):
        return _recover(home, _move_away(home))


@contextmanager
def _owned(home: Home) -> Iterator[None]:
    home.create()
    lock = home.lock()
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(f"{home.database} cannot be written ({error})", full=False) from error
    finally:
        lock.release()


def _require_version(database: Path) -> None:
    """Raises CorruptDatabaseError where this version cannot open it; upgrades it."""
    store = Store(database)
    try:
        store.migrate(backup=False)
    finally:
        store.close()


def _move_away(home: Home) -> Path | None:
    """With its log, which would be mixed with the next database."""
    files = [home.database.with_name(home.database.name + suffix) for suffix in ("-wal", "-shm", "")]
    present = [file for file in files if file.exists() or file.is_symlink()]
    if not present:
        return None
    home.backups.mkdir(mode=0o700, exist_ok=True)
    target = home.backups / f"replaced-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    target.mkdir(mode=0o700)
    for file in present:
        file.rename(target / file.name)
    fsync_directory(target)
    fsync_directory(home.root)
    return target


def _recover(home: Home, replaced: Path | None) -> Restored:
    store = Store(home.database)
    try:
        store.migrate()
        store.recovery.skip_versions(_SKIPPED_VERSIONS)
        recovered = recover_on_startup(home, store)
        sync = RunSync(store, home)
        for job in store.holding():
            sync.read_journal(job)
        return Restored(sum(store.totals().jobs.values()), recovered, replaced)
    finally:
        store.close()
