"""The journal of a keeper whose disk may be full, which neither loses a record nor stops a training, and its clock.

On a cluster it is the clock of the home, so that all coordinators have the same.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from rekindle.contract.files import NO_SPACE_ERRNOS, why_unwritable
from rekindle.contract.run_dir.journal import Journal, RecordType

_RETRY_INTERVAL = 2.0  # seconds
CLOCK_TOLERANCE = 1.0  # seconds by which clocks may differ unnoticed

_clock_offset = 0.0  # seconds


class AttemptJournal(Protocol):
    """Where the records of an attempt go: to the journal, or to the keeper that writes it."""

    def write_nowait(self, record_type: RecordType, **fields: Any) -> None: ...


class SupersededError(Exception):
    """Another keeper has taken over the job: this one must not write anything any more."""


class UnwritableError(Exception):
    """What this keeper writes is lost, and on another machine it may not be: its ranks must not train on."""


class BufferedJournal:
    """Writes records in the order in which they were given, each with its time.

    The next attempt may begin only once the journal has its record, or a later keeper would reuse its number; so
    ``write`` waits for space. What happens within an attempt need not be on disk at once: ``write_nowait`` never waits.
    """

    def __init__(
        self, path: Path, wait: Callable[[float], None], check_owner: Callable[[], None] | None = None, **stamp: Any
    ) -> None:
        """``wait`` is called with seconds while the disk is full; it may raise to give up.

        ``check_owner`` is called before each record, unless a lock shows that no other keeper writes the journal; it
        raises SupersededError where one does. ``stamp``: fields of every record.
        """
        self._journal, self._wait, self._check_owner, self._stamp = Journal(path), wait, check_owner, stamp
        self._buffer: deque[tuple[RecordType, float, dict[str, Any]]] = deque()

    def write(self, record_type: RecordType, **fields: Any) -> None:
        """Write a record, after all that is still buffered.

        Raises OSError where more space would not help, and SupersededError.
        """
        self._add(record_type, fields)
        while True:
            try:
                return self._flush()
            except OSError as error:
                if error.errno not in NO_SPACE_ERRNOS:
                    raise
                self._wait(_RETRY_INTERVAL)

    def write_nowait(self, record_type: RecordType, **fields: Any) -> None:
        """Write a record now if that is possible, else before the next. Raises SupersededError, UnwritableError."""
        self._add(record_type, fields)
        with suppress(OSError):
            self._flush()

    def _add(self, record_type: RecordType, fields: dict[str, Any]) -> None:
        self._buffer.append((record_type, journal_time(), {**fields, **self._stamp}))

    def check_owner(self) -> None:
        """Raise SupersededError where another keeper writes this journal now."""
        if self._check_owner is not None:
            self._check_owner()

    def _flush(self) -> None:
        self.check_owner()
        while self._buffer:
            record_type, at, fields = self._buffer[0]
            try:
                self._journal.write(record_type, at=at, **fields)
            except OSError as error:
                reason = why_unwritable(error, error.filename)
                if self._check_owner is not None and reason is not None:
                    raise UnwritableError(reason) from error
                raise
            self._buffer.popleft()


def journal_time() -> float:
    """The time of day of a job's records, in seconds since the epoch."""
    return time.time() + _clock_offset


def follow_clock_of(path: Path) -> None:
    """Take over the clock of the file system on which this process has written ``path`` just now, if it is seen."""
    global _clock_offset  # a process has one time of day
    with suppress(OSError):
        ahead = path.stat().st_mtime - time.time()
        _clock_offset = ahead if abs(ahead) > CLOCK_TOLERANCE else 0.0
