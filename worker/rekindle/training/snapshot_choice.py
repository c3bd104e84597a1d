"""Which snapshot a training goes on from: the newest that passes all checks, in shared memory or on disk."""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rekindle.training.manifest import BadSnapshotError, Manifest, verify
from rekindle.training.memory_copy import claim
from rekindle.training.reporting import reporter
from rekindle.training.snapshot_writer import SnapshotError, SnapshotWriter

PATIENCE = 300.0  # seconds in which a disk that does not give what it has may come back, as a network file system does
_PAUSE = 2.0  # seconds between two tries


class NotGivenError(SnapshotError):
    """The disk does not give now what it has; that says nothing against a snapshot."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A snapshot that failed its checks and was put into quarantine."""

    step: int
    reason: str


Choice = tuple[Manifest | None, Path, list[Skipped]]
"""The snapshot, its folder, and those passed over."""


Unloadable = dict[Path, Skipped]
"""By folder: snapshots that are as they were written, and yet not to be loaded by some rank."""


def choose(disk: SnapshotWriter, memory: SnapshotWriter | None, unloadable: Unloadable) -> Choice | SnapshotError:
    """The newest intact snapshot, and those skipped on the way to it; the error is for all ranks. Rank 0 only.

    A disk that does not give what it has is waited for; then this attempt ends, and the next one may find it well.
    Neither does a training start anew where there are snapshots, and none that can be loaded.
    """
    deadline = time.monotonic() + PATIENCE
    while isinstance(found := _choose_at_once(disk, memory, unloadable), NotGivenError):
        if time.monotonic() >= deadline:
            break
        reporter().warn(f"waiting for the snapshots: {found}")
        time.sleep(_PAUSE)
    return found


def _choose_at_once(
    disk: SnapshotWriter, memory: SnapshotWriter | None, unloadable: Unloadable
) -> Choice | SnapshotError:
    try:
        disk.check_fence()
        disk.check_owner()
        manifest, skipped = _choose_on_disk(disk, unloadable)
    except SnapshotError as error:
        return error
    except OSError as error:
        return _not_given(disk.folder.root, error)
    copy = None if memory is None else _choose_in_memory(memory, unloadable)
    if manifest is None and copy is None and unloadable:
        newest = next(iter(unloadable.values()))
        return SnapshotError(
            f"no snapshot in {disk.folder.root} can be loaded; of the newest, of step {newest.step}, {newest.reason}. "
            "Allow its class by torch.serialization.add_safe_globals, or start in a new snapshot folder"
        )
    if copy is not None and memory is not None and (manifest is None or copy.step > manifest.step):
        return copy, memory.folder.path(copy.step), skipped
    return manifest, disk.folder.path(0 if manifest is None else manifest.step), skipped


def set_aside(disk: SnapshotWriter, unloadable: Unloadable) -> None:
    """Put what could not be loaded into quarantine, now that an older one is known to be good. Rank 0 only."""
    for folder, each in unloadable.items():
        if folder.parent == disk.folder.root:
            disk.folder.quarantine(each.step)


def _choose_on_disk(disk: SnapshotWriter, unloadable: Unloadable) -> tuple[Manifest | None, list[Skipped]]:
    """Raises OSError or SnapshotError where the disk does not give what it has."""
    disk.folder.sweep()
    skipped: list[Skipped] = []
    for step in disk.folder.steps():
        if (known := unloadable.get(disk.folder.path(step))) is not None:
            skipped.append(known)
            continue
        try:
            return verify(disk.folder.path(step), step=step, job_id=disk.job_id), skipped
        except OSError as error:
            raise _not_given(disk.folder.path(step), error) from error
        except BadSnapshotError as error:
            disk.folder.quarantine(step)
            skipped.append(Skipped(step, str(error)))
    return None, skipped


def _not_given(place: Path, error: OSError) -> NotGivenError:
    return NotGivenError(
        f"{place} cannot be read now: {error}. Where it is lost for good, move it out of its folder, and the snapshot "
        "before it is used"
    )


def _choose_in_memory(memory: SnapshotWriter, unloadable: Unloadable) -> Manifest | None:
    """A copy that is damaged, or lies where another user could have put it, is as good as none."""
    copies = memory.folder
    if not copies.root.exists():
        return None
    with suppress(OSError):
        claim(copies.root)
        copies.sweep()
        for step in copies.steps():
            if copies.path(step) in unloadable:
                continue
            with suppress(BadSnapshotError):
                return verify(copies.path(step), step=step, job_id=memory.job_id)
    return None
