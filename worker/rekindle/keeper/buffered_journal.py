"""The journal of a keeper whose disk may be full: no record is lost for it, and no training stops for it."""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rekindle.contract.files import NO_SPACE_ERRNOS
from rekindle.contract.run_dir.journal import Journal, RecordType

_RETRY_INTERVAL = 2.0  # seconds


class BufferedJournal:
    """Records are written in the order in which they were given, each with the time at which it was.

    The next attempt may begin only once the journal has its record, or a later keeper would reuse its number; so
    ``write`` waits for space. What happens within an attempt need not be on disk at once: ``write_nowait`` never waits.
    """

    def __init__(self, path: Path, wait: Callable[[float], None]) -> None:
        """``wait`` is called with seconds while the disk is full; it may raise to give up."""
        self._journal, self._wait = Journal(path), wait
        self._buffer: deque[tuple[RecordType, float, dict[str, Any]]] = deque()

    def write(self, record_type: RecordType, **fields: Any) -> None:
        """Write it, after all that is still buffered. Raises OSError where more space would not help."""
        self._buffer.append((record_type, time.time(), fields))
        while True:
            try:
                return self._flush()
            except OSError as error:
                if error.errno not in NO_SPACE_ERRNOS:
                    raise
                self._wait(_RETRY_INTERVAL)

    def write_nowait(self, record_type: RecordType, **fields: Any) -> None:
        """Write it now if that is possible, else before the next record."""
        self._buffer.append((record_type, time.time(), fields))
        with suppress(OSError):
            self._flush()

    def _flush(self) -> None:
        while self._buffer:
            record_type, at, fields = self._buffer[0]
            self._journal.write(record_type, at=at, **fields)
            self._buffer.popleft()
