"""The thread that looks after the database while a server runs: is it there, is it whole, is a backup due."""

import time
from contextlib import suppress

import structlog

from rekindle_service.periodic_thread import PeriodicThread
from rekindle_service.store.backups import SCHEDULED
from rekindle_service.store.job_store import Store

_log = structlog.get_logger(__name__)

_CHECK_INTERVAL = 5.0  # seconds; a removed file is then written again, even if nothing changes
_VERIFY_INTERVAL = 300.0  # seconds, at least; the whole file is read
_VERIFY_SHARE = 100  # the time between two verifications is at least so many times that of one
_FIRST_BACKUP = 600.0  # seconds after the start of a server that finds none
_RETRY_BACKUP = 600.0  # seconds


class Maintenance:
    """``backup_hours`` 0 makes no backups; ``kept`` scheduled ones remain."""

    def __init__(self, store: Store, backup_hours: float, kept: int) -> None:
        self._store = store
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
        self._store.check()
        if time.monotonic() >= self._verify_at:
            self._verify()
        if self._backup_seconds and time.monotonic() >= self._backup_at:
            self._back_up()

    def _verify(self) -> None:
        started = time.monotonic()
        self._store.verify()
        self._verify_at = time.monotonic() + max(_VERIFY_INTERVAL, _VERIFY_SHARE * (time.monotonic() - started))

    def _back_up(self) -> None:
        self._backup_at = time.monotonic() + _RETRY_BACKUP
        path = self._store.backups.make(SCHEDULED, self._kept)
        self._backup_at = time.monotonic() + self._backup_seconds
        _log.info("The database was backed up", path=str(path))

    def _first_backup(self) -> float:
        """Seconds until the first: when the latest of an earlier server is old enough."""
        latest = next(iter(self._store.backups.of_kind(SCHEDULED)), None)
        with suppress(OSError):
            if latest is not None:
                age = max(0.0, time.time() - latest.stat().st_mtime)
                return max(_FIRST_BACKUP if age > self._backup_seconds else 0.0, self._backup_seconds - age)
        return _FIRST_BACKUP
