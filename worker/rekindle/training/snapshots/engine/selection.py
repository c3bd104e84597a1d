"""Which snapshot a training resumes from: the latest that passes all checks, in shared memory or on disk."""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.run_dir.snapshots import BadSnapshotError, Manifest
from rekindle.training.reporting.reporter import reporter
from rekindle.training.snapshots.engine.shm import ensure_private_dir
from rekindle.training.snapshots.engine.writer import SnapshotError, SnapshotWriter
from rekindle.training.snapshots.storage.manifest import verify

STORAGE_TIMEOUT = 300.0  # seconds in which unavailable storage may come back, as a network file system does
_RETRY_INTERVAL = 2.0  # seconds


class StorageUnavailableError(SnapshotError):
    """The disk cannot be read now; that is no evidence against a snapshot."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A snapshot that failed its checks and was quarantined."""

    step: int
    reason: str


Selection = tuple[Manifest | None, Path, list[Skipped]]
"""The snapshot, its directory, and those skipped."""

Unloadable = dict[Path, Skipped]
"""By directory: snapshots that are as they were written, and yet cannot be loaded by some rank."""


def select(disk: SnapshotWriter, shm: SnapshotWriter | None, unloadable: Unloadable) -> Selection | SnapshotError:
    """The latest intact snapshot, and those skipped before it; the error is for all ranks. Rank 0 only.

    Waits for unavailable storage; then this attempt ends, and the next one may find it available. Nor does a training
    start from the beginning where there are snapshots, and none that can be loaded.
    """
    deadline = time.monotonic() + STORAGE_TIMEOUT
    while isinstance(found := _select_once(disk, shm, unloadable), StorageUnavailableError):
        if time.monotonic() >= deadline:
            break
        reporter().warn(f"waiting for the snapshots: {found}")
        time.sleep(_RETRY_INTERVAL)
    return found


def quarantine(disk: SnapshotWriter, unloadable: Unloadable) -> None:
    """Quarantine what could not be loaded, now that an older snapshot is known to be good. Rank 0 only."""
    for folder, each in unloadable.items():
        if folder.parent == disk.storage.root:
            disk.storage.quarantine(each.step)


def _select_once(disk: SnapshotWriter, shm: SnapshotWriter | None, unloadable: Unloadable) -> Selection | SnapshotError:
    try:
        disk.check_fence()
        disk.check_owner()
        manifest, skipped = _select_on_disk(disk, unloadable)
    except SnapshotError as error:
        return error
    except OSError as error:
        return _unavailable(disk.storage.root, error)
    copy = None if shm is None else _select_in_shm(shm, unloadable)
    if manifest is None and copy is None and unloadable:
        latest = next(iter(unloadable.values()))
        return SnapshotError(
            f"no snapshot in {disk.storage.root} can be loaded; of the latest, of step {latest.step}, {latest.reason}. "
            "Allow its class by torch.serialization.add_safe_globals, or start in a new snapshot directory"
        )
    if copy is not None and shm is not None and (manifest is None or copy.step > manifest.step):
        return copy, shm.storage.path(copy.step), skipped
    return manifest, disk.storage.path(0 if manifest is None else manifest.step), skipped


def _select_on_disk(disk: SnapshotWriter, unloadable: Unloadable) -> tuple[Manifest | None, list[Skipped]]:
    """Raises OSError or SnapshotError where the disk cannot be read."""
    disk.storage.clean_leftovers()
    skipped: list[Skipped] = []
    for step in disk.storage.steps():
        if (known := unloadable.get(disk.storage.path(step))) is not None:
            skipped.append(known)
            continue
        try:
            return verify(disk.storage.path(step), step=step, job_id=disk.job_id), skipped
        except OSError as error:
            raise _unavailable(disk.storage.path(step), error) from error
        except BadSnapshotError as error:
            disk.storage.quarantine(step)
            skipped.append(Skipped(step, str(error)))
    return None, skipped


def _unavailable(path: Path, error: OSError) -> StorageUnavailableError:
    return StorageUnavailableError(
        f"{path} cannot be read now: {error}. If it is lost for good, move it out of its directory: then the snapshot "
        "before it is used"
    )


def _select_in_shm(shm: SnapshotWriter, unloadable: Unloadable) -> Manifest | None:
    """A snapshot that is damaged, or is stored where another user could have written it, is ignored."""
    storage = shm.storage
    if not storage.root.exists():
        return None
    with suppress(OSError):
        ensure_private_dir(storage.root)
        storage.clean_leftovers()
        for step in storage.steps():
            if storage.path(step) in unloadable:
                continue
            with suppress(BadSnapshotError):
                return verify(storage.path(step), step=step, job_id=shm.job_id)
    return None
