"""Which snapshot a training goes on from: the newest that passes all checks, in shared memory or on disk."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rekindle.training.manifest import BadSnapshotError, Manifest, verify
from rekindle.training.memory_copy import claim
from rekindle.training.snapshot_writer import SnapshotError, SnapshotWriter


@dataclass(frozen=True, slots=True)
class Skipped:
    """A snapshot that failed its checks and was put into quarantine."""

    step: int
    reason: str


Choice = tuple[Manifest | None, Path, list[Skipped]]
"""The snapshot, its folder, and those passed over."""


def choose(disk: SnapshotWriter, memory: SnapshotWriter | None) -> Choice | SnapshotError:
    """The newest intact snapshot, and those skipped on the way to it; the error is for all ranks. Rank 0 only."""
    try:
        disk.check_fence()
        disk.check_owner()
    except SnapshotError as error:
        return error
    manifest, skipped = _choose_on_disk(disk)
    copy = None if memory is None else _choose_in_memory(memory)
    if copy is not None and memory is not None and (manifest is None or copy.step > manifest.step):
        return copy, memory.folder.path(copy.step), skipped
    return manifest, disk.folder.path(0 if manifest is None else manifest.step), skipped


def _choose_on_disk(disk: SnapshotWriter) -> tuple[Manifest | None, list[Skipped]]:
    disk.folder.sweep()
    skipped: list[Skipped] = []
    for step in disk.folder.steps():
        try:
            return verify(disk.folder.path(step), step=step, job_id=disk.job_id), skipped
        except BadSnapshotError as error:
            disk.folder.quarantine(step)
            skipped.append(Skipped(step, str(error)))
    return None, skipped


def _choose_in_memory(memory: SnapshotWriter) -> Manifest | None:
    """A copy that is damaged, or lies where another user could have put it, is as good as none."""
    copies = memory.folder
    if not copies.root.exists():
        return None
    with suppress(OSError):
        claim(copies.root)
        copies.sweep()
        for step in copies.steps():
            with suppress(BadSnapshotError):
                return verify(copies.path(step), step=step, job_id=memory.job_id)
    return None
