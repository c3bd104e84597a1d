"""Rolling a job back to an earlier snapshot on request: the later ones are quarantined before the first attempt."""

import shutil

from rekindle.contract.files import fsync_directory
from rekindle.contract.run_dir.paths import MAX_ATTEMPT, RunDir
from rekindle.contract.run_dir.snapshots import SnapshotDir, write_void_attempt
from rekindle.contract.safe_open import list_numbers


def roll_back(run_dir: RunDir, step: int) -> list[int]:
    """Let training resume from the snapshot of ``step``; returns the quarantined steps, none where it does not exist.

    Quarantined snapshots stay whole, but are no longer chosen, and are deleted when training has passed their step
    again. Once an attempt of the run has begun this must not be repeated, since later snapshots are then its own.
    Raises OSError.
    """
    snapshots = SnapshotDir(run_dir.snapshots)
    steps = snapshots.steps()
    if step not in steps:
        return []
    shutil.rmtree(run_dir.memory, ignore_errors=True)  # holds a copy of a later step
    if run_dir.launches.exists():  # and so may other machines
        write_void_attempt(run_dir.memory_void, max(list_numbers(run_dir.attempts, MAX_ATTEMPT), default=0))
    later = sorted(each for each in steps if each > step)
    for each in later:
        shutil.rmtree(snapshots.quarantine_path(each), ignore_errors=True)
        snapshots.path(each).rename(snapshots.quarantine_path(each))
    fsync_directory(run_dir.snapshots)
    return later
