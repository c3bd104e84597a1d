"""Rolling a job back to an earlier snapshot on request: the later ones are quarantined before the first attempt."""

import shutil

from rekindle.contract.files import fsync_directory
from rekindle.contract.run_dir.paths import RunDir

_DIGITS = 12


def roll_back(run_dir: RunDir, step: int) -> list[int]:
    """Let training resume from the snapshot of ``step``; returns the quarantined steps, none where it does not exist.

    Quarantined snapshots stay whole, but are no longer chosen, and are deleted when training has passed their step
    again. Once an attempt of the run has begun this must not be repeated, since later snapshots are then its own.
    Raises OSError.
    """
    names = (entry.name for entry in run_dir.snapshots.iterdir())
    steps = sorted(int(name) for name in names if len(name) == _DIGITS and name.isascii() and name.isdecimal())
    if step not in steps:
        return []
    shutil.rmtree(run_dir.memory, ignore_errors=True)  # holds a copy of a later step
    later = [each for each in steps if each > step]
    for each in later:
        name = f"{each:0{_DIGITS}d}"
        quarantine = run_dir.snapshots / f"quarantine-{name}"
        shutil.rmtree(quarantine, ignore_errors=True)
        (run_dir.snapshots / name).rename(quarantine)
    fsync_directory(run_dir.snapshots)
    return later
