"""What snapshots a run has, by their manifests. Tensors are never opened here."""

from dataclasses import dataclass, replace
from pathlib import Path

from rekindle.contract.run_dir.snapshots import MANIFEST, BadSnapshotError, Manifest, SnapshotDir
from rekindle.contract.safe_open import list_numbers, read_small, stat_beneath
from rekindle.contract.score import Score, best_step


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """One committed snapshot. ``verified``: every file that the manifest lists is there, with the size given."""

    step: int
    epoch: int | None
    bytes: int
    verified: bool
    world_size: int
    created_at: float  # seconds since the epoch
    scored: Score | None
    best: bool = False  # of those that are there

    @property
    def score(self) -> float | None:
        return None if self.scored is None else self.scored.value


def read_snapshots(root: Path, snapshots: Path) -> list[SnapshotInfo]:
    """The snapshots in ``snapshots`` beneath ``root``, latest step first; without those that have no valid manifest."""
    found = [info for step in reversed(list_numbers(snapshots)) if (info := _read(root, snapshots, step)) is not None]
    best = best_step({info.step: info.scored for info in found if info.scored is not None})
    return [replace(info, best=info.step == best) for info in found]


def snapshot_files(root: Path, snapshots: Path, step: int) -> list[Path] | None:
    """The files of the committed snapshot of ``step``, its manifest last; None where there is none."""
    directory = SnapshotDir(snapshots).path(step)
    manifest = _manifest(root, directory)
    return None if manifest is None else [directory / name for name in [*manifest.files, MANIFEST]]


def _manifest(root: Path, directory: Path) -> Manifest | None:
    try:
        return Manifest.parse(read_small(root, directory / MANIFEST) or b"")
    except BadSnapshotError:
        return None


def _read(root: Path, snapshots: Path, step: int) -> SnapshotInfo | None:
    directory = SnapshotDir(snapshots).path(step)
    manifest = _manifest(root, directory)
    if manifest is None or manifest.step != step:
        return None
    return SnapshotInfo(
        step=step,
        epoch=manifest.epoch,
        bytes=manifest.size,
        verified=all(_has_size(root, directory / name, record.bytes) for name, record in manifest.files.items()),
        world_size=manifest.world_size,
        created_at=manifest.created_at,
        scored=manifest.score,
    )


def _has_size(root: Path, path: Path, size: int) -> bool:
    found = stat_beneath(root, path)
    return found is not None and found.st_size == size
