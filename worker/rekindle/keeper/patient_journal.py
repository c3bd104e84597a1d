"""The journal of a keeper whose disk may be full: no record is lost for it, and no training stops for it."""

import errno
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rekindle.contract.run_dir.journal import Journal, RecordType

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_PAUSE = 2.0  # seconds between two tries


class PatientJournal:
    """Records are written in the order in which they were given, each with the time at which it was.

    The next attempt may begin only once the journal says that it does, or a later keeper would take its number again;
    so ``write`` waits for room. What happens within an attempt need not be on disk at once: ``note`` never waits.
    """

    def __init__(self, path: Path, wait: Callable[[float], None]) -> None:
        """``wait`` is called with seconds while there is no room; it may raise to give up."""
        self._journal, self._wait = Journal(path), wait
        self._waiting: deque[tuple[RecordType, float, dict[str, Any]]] = deque()

    def write(self, record_type: RecordType, **fields: Any) -> None:
        """Write it, and all that has been noted before. Raises OSError where more room would not help."""
        self._waiting.append((record_type, time.time(), fields))
        while True:
            try:
                return self._write_waiting()
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._wait(_PAUSE)

    def note(self, record_type: RecordType, **fields: Any) -> None:
        """Write it now if that can be, else before the next record."""
        self._waiting.append((record_type, time.time(), fields))
        try:
            self._write_waiting()
        except OSError:
            return

    def _write_waiting(self) -> None:
        while self._waiting:
            record_type, at, fields = self._waiting[0]
            self._journal.write(record_type, at=at, **fields)
            self._waiting.popleft()
