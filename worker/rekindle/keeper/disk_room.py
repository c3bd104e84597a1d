"""Is there room on a disk? Asked before a rank is blamed for what it could not write down."""

from pathlib import Path

from rekindle.contract.files import atomic_write

_PROBE = 4096  # bytes: less than this, and no status or marker fits


def has_room(folder: Path) -> bool:
    """True where a small file can be written into ``folder``."""
    probe = folder / "probe"
    try:
        atomic_write(probe, bytes(_PROBE), durable=False)
        probe.unlink()
    except OSError:
        return False
    return True
