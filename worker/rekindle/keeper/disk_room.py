"""Is there room on a disk? Asked before a rank is blamed for what it could not write down."""

from pathlib import Path

from rekindle.contract.durable import write_whole

_PROBE = 4096  # bytes: less than this, and no status or marker fits


def has_room(folder: Path) -> bool:
    """True where a small file can be written into ``folder``."""
    probe = folder / "probe"
    try:
        write_whole(probe, bytes(_PROBE), durable=False)
        probe.unlink()
    except OSError:
        return False
    return True
