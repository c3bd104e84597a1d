"""Is there space on a disk? Asked before a process is blamed for what it could not write down."""

import errno
from pathlib import Path

from rekindle.contract.files import atomic_write

NO_SPACE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})
_PROBE = bytes(4096)  # less space than this, and no status, marker or journal record fits


def check_free_space(directory: Path) -> None:
    """Write a small file into ``directory`` and remove it. Raises OSError, naming ``directory``, where that fails."""
    probe = directory / ".space-probe"
    try:
        atomic_write(probe, _PROBE, durable=False)
        probe.unlink()
    except OSError as error:
        error.filename = str(directory)
        raise


def has_free_space(directory: Path) -> bool:
    """True where a small file can be written into ``directory``."""
    try:
        check_free_space(directory)
    except OSError:
        return False
    return True
