"""The stack that a rank writes on request."""

import os
import time
from pathlib import Path
from typing import BinaryIO

from rekindle.contract.safe_open import open_beneath
from rekindle_service.run_readers.logs import size_of

_POLL = 0.05  # seconds
_QUIET = 0.15  # seconds without a new byte after which a stack counts as complete
_MAX_BYTES = 256 * 1024


def wait_for_stack(root: Path, path: Path, offset: int, timeout: float) -> str | None:
    """What the rank writes after ``offset`` within ``timeout`` seconds; None where it writes nothing.

    A stack comes in many small writes with no end mark: it is complete when nothing more has come for a moment.
    """
    if (file := open_beneath(root, path)) is None:
        return None
    with file:
        size = _settled_size(file, offset, time.monotonic() + timeout)
        data = os.pread(file.fileno(), min(size - offset, _MAX_BYTES), offset)
    return data.decode(errors="replace") or None


def _settled_size(file: BinaryIO, offset: int, deadline: float) -> int:
    size, changed_at = offset, time.monotonic()
    while (now := time.monotonic()) < deadline:
        latest = size_of(file)
        if latest != size:
            size, changed_at = latest, now
        elif size > offset and now - changed_at >= _QUIET:
            break
        time.sleep(_POLL)
    return size
