"""Pinning a snapshot, against a training that may be deleting it in this very moment."""

import time
from threading import Lock

from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.pins import read_pins, write_pins
from rekindle_service.run_readers.snapshots import snapshot_files

_PATIENCE = 1.0  # seconds in which a snapshot that was being moved away comes back
_one_at_a_time = Lock()


def pin(run_dir: RunDir, step: int) -> bool:
    """Keep the snapshot of ``step`` for good; False where there is none (any more).

    The training moves a snapshot away, looks once more whether it is pinned, and deletes it only then. So it either
    sees this pin and moves the snapshot back, or had moved it away before the pin was written: then it is not there.
    """
    with _one_at_a_time:
        pinned = read_pins(run_dir.pins)
        write_pins(run_dir.pins, pinned | {step})
        deadline = time.monotonic() + _PATIENCE
        while snapshot_files(run_dir.root, run_dir.snapshots, step) is None:
            if time.monotonic() > deadline:
                write_pins(run_dir.pins, pinned - {step})
                return False
            time.sleep(0.02)
        return True


def unpin(run_dir: RunDir, step: int) -> None:
    """Leave the snapshot to the rules of the job again, from its next snapshot on."""
    with _one_at_a_time:
        write_pins(run_dir.pins, read_pins(run_dir.pins) - {step})
