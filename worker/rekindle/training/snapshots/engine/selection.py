"""Which snapshot an attempt resumes from, as rank 0 selects it: the latest intact one, on disk or in memory."""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.run_dir.snapshots import BadSnapshotError, Manifest
from rekindle.training.reporting.reporter import reporter
from rekindle.training.snapshots.engine.node_copies import NodeCopy
from rekindle.training.snapshots.engine.shm import ensure_private_dir
from rekindle.training.snapshots.engine.writer import SnapshotError, SnapshotWriter
from rekindle.training.snapshots.storage.directory import CACHE_TIMEOUT, refresh, verify

STORAGE_TIMEOUT = 300.0  # seconds in which unavailable storage may come back, as a network file system does
RETRY_INTERVAL = 2.0  # seconds


class StorageUnavailableError(SnapshotError):
    """The disk cannot be read now; that is no evidence against a snapshot."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A snapshot that failed its checks and was quarantined."""

    step: int
    reason: str


Selection = tuple[Manifest | None, Path, list[Skipped]]  # the snapshot, its directory, and those skipped
Unloadable = dict[Path, Skipped]  # by directory: as they were written, and yet some rank cannot load them


def select(
    disk: SnapshotWriter, shm: SnapshotWriter | None, copies: dict[Path, NodeCopy], unloadable: Unloadable
) -> Selection | SnapshotError:
    """The latest intact snapshot; the error is for all ranks. Rank 0 only.

    Waits for unavailable storage; then this attempt ends, and the next one may find it available. Nor does a training
    start from the beginning where there are snapshots, and none that can be loaded.
    """
    deadline = time.monotonic() + STORAGE_TIMEOUT
    while isinstance(found := _select_once(disk, shm, copies, unloadable), StorageUnavailableError):
        if time.monotonic() >= deadline:
            break
        reporter().warn(f"waiting for the snapshots: {found}")
        time.sleep(RETRY_INTERVAL)
    return found


def _select_once(
    disk: SnapshotWriter, shm: SnapshotWriter | None, copies: dict[Path, NodeCopy], unloadable: Unloadable
) -> Selection | SnapshotError:
    if disk.world.spans_machines:
        refresh(disk.storage.root.parent)
    try:
        disk.check_fence()
        disk.check_owner()
        manifest, skipped = _select_on_disk(disk, unloadable)
    except SnapshotError as error:
        return error
    except OSError as error:
        return storage_unavailable(disk.storage.root, error)
    copy, directory = _select_copy(shm, copies, unloadable)
    if manifest is None and copy is None and unloadable:
        latest = next(iter(unloadable.values()))
        return SnapshotError(
            f"no snapshot in {disk.storage.root} can be loaded; of the latest, of step {latest.step}, {latest.reason}. "
            "Allow its class by torch.serialization.add_safe_globals, or start in a new snapshot directory"
        )
    if copy is not None and (manifest is None or copy.step > manifest.step):
        return copy, directory, skipped
    return manifest, disk.storage.path(0 if manifest is None else manifest.step), skipped


def _select_on_disk(disk: SnapshotWriter, unloadable: Unloadable) -> tuple[Manifest | None, list[Skipped]]:
    """Raises OSError or SnapshotError where the disk cannot be read."""
    timeout = CACHE_TIMEOUT if disk.world.spans_machines else 0.0
    disk.storage.clean_leftovers()
    skipped: list[Skipped] = []
    for step in disk.storage.steps():
        if (known := unloadable.get(disk.storage.path(step))) is not None:
            skipped.append(known)
            continue
        try:
            return verify(disk.storage.path(step), step=step, job_id=disk.job_id, timeout=timeout), skipped
        except OSError as error:
            raise storage_unavailable(disk.storage.path(step), error) from error
        except BadSnapshotError as error:
            disk.storage.quarantine(step)
            skipped.append(Skipped(step, str(error)))
    return None, skipped


def _select_copy(
    shm: SnapshotWriter | None, copies: dict[Path, NodeCopy], unloadable: Unloadable
) -> tuple[Manifest | None, Path]:
    """The latest in memory: of this machine, ``shm``, or of several, where ``copies`` are in order."""
    for directory, copy in copies.items():
        if directory not in unloadable:
            return copy.manifest, directory
    found = None if shm is None else _select_in_shm(shm, unloadable)
    return found, Path() if found is None or shm is None else shm.storage.path(found.step)


def _select_in_shm(shm: SnapshotWriter, unloadable: Unloadable) -> Manifest | None:
    """A snapshot that is damaged, or is stored where another user could have written it, is ignored."""
    storage = shm.storage
    if not storage.root.exists():
        return None
    with suppress(OSError):
        ensure_private_dir(storage.root)
        storage.clean_leftovers()
        for step in storage.steps():
            if storage.path(step) not in unloadable:
                with suppress(BadSnapshotError):
                    return verify(storage.path(step), step=step, job_id=shm.job_id)
    return None


def storage_unavailable(path: Path, error: OSError) -> StorageUnavailableError:
    return StorageUnavailableError(
        f"{path} cannot be read now: {error}. If it is lost for good, move it out of its directory: then the snapshot "
        "before it is used"
    )
