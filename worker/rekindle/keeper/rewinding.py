"""Going back to an earlier snapshot on a user's wish: the newer ones are set aside before the run's first attempt."""

import shutil
from pathlib import Path

from rekindle.contract.files import fsync_directory
from rekindle.contract.run_dir.paths import RunDir

_DIGITS = 12


def rewind(run_dir: RunDir, step: int) -> list[int]:
    """Let the training go on from the snapshot of ``step``; gives back the steps set aside, or none where it is gone.

    Those are quarantined: whole, but no longer chosen, and deleted when the training has come past them again. Once
    an attempt of the run has begun this must not be done again, since newer snapshots are its own then. Raises OSError.
    """
    steps = sorted(int(entry.name) for entry in run_dir.snapshots.iterdir() if _is_snapshot(entry))
    if step not in steps:
        return []
    shutil.rmtree(run_dir.memory, ignore_errors=True)  # holds a copy of a later step
    newer = [each for each in steps if each > step]
    for each in newer:
        name = f"{each:0{_DIGITS}d}"
        aside = run_dir.snapshots / f"quarantine-{name}"
        shutil.rmtree(aside, ignore_errors=True)
        (run_dir.snapshots / name).rename(aside)
    fsync_directory(run_dir.snapshots)
    return newer


def _is_snapshot(entry: Path) -> bool:
    return len(entry.name) == _DIGITS and entry.name.isascii() and entry.name.isdecimal()
